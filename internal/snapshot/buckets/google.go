/*
Copyright 2026 The Catena Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package buckets

import (
	"context"
	"fmt"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"gocloud.dev/aws"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

// googleDefaults are the parameters of gs:// URLs that differ from the defaults of s3://. Google does not implement the
// checksums that the AWS SDK sends by default.
var googleDefaults = map[string]string{
	"endpoint":                     "https://storage.googleapis.com",
	"region":                       "auto",
	"request_checksum_calculation": "when_required",
	"response_checksum_validation": "when_required",
}

func init() {
	blob.DefaultURLMux().RegisterBucket("gs", googleOpener{})
}

// googleOpener opens gs://BUCKET through the S3-compatible API of Google Cloud Storage, with an HMAC key as AWS
// credentials. Google's own client would add 19 MB to each program. The parameters are those of gocloud.dev/aws.
type googleOpener struct{}

// OpenBucketURL implements blob.BucketURLOpener.
func (googleOpener) OpenBucketURL(ctx context.Context, u *url.URL) (*blob.Bucket, error) {
	parameters := u.Query()
	for name, value := range googleDefaults {
		if !parameters.Has(name) {
			parameters.Set(name, value)
		}
	}
	config, err := aws.V2ConfigFromURLParams(ctx, parameters)
	if err != nil {
		return nil, fmt.Errorf("unable to open gs://%s: %w", u.Host, err)
	}
	client := s3.NewFromConfig(config, func(o *s3.Options) {
		o.UsePathStyle = true
		o.APIOptions = append(o.APIOptions, leaveEncodingUnsigned)
	})
	return s3blob.OpenBucket(ctx, client, u.Host, &s3blob.Options{RequestChecksumCalculation: config.RequestChecksumCalculation})
}

// leaveEncodingUnsigned keeps Accept-Encoding out of the signature. Google's front end changes that header before the
// signature is verified, see https://github.com/aws/aws-sdk-go-v2/issues/1816.
func leaveEncodingUnsigned(stack *middleware.Stack) error {
	const header = "Accept-Encoding"
	type value struct{}
	remove := middleware.FinalizeMiddlewareFunc("RemoveAcceptEncoding",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			if request, ok := in.Request.(*smithyhttp.Request); ok {
				ctx = middleware.WithStackValue(ctx, value{}, request.Header.Get(header))
				request.Header.Del(header)
			}
			return next.HandleFinalize(ctx, in)
		})
	restore := middleware.FinalizeMiddlewareFunc("RestoreAcceptEncoding",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			encoding, _ := middleware.GetStackValue(ctx, value{}).(string)
			if request, ok := in.Request.(*smithyhttp.Request); ok && encoding != "" {
				request.Header.Set(header, encoding)
			}
			return next.HandleFinalize(ctx, in)
		})
	if err := stack.Finalize.Insert(remove, "Signing", middleware.Before); err != nil {
		return err
	}
	return stack.Finalize.Insert(restore, "Signing", middleware.After)
}
