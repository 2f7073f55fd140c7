// Module consumer is an example of a program that uses Catena and tests itself with catenatest; see docs/testing.md.
module example.com/gateway

go 1.26.0

require github.com/catena-dev/catena v0.0.0

replace github.com/catena-dev/catena => ../..
