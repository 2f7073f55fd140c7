// A client of OpenAI's WebSocket mode.
const terminal = ['response.completed', 'response.incomplete', 'response.failed', 'error'];

export class Socket {
  #socket;
  #messages = [];
  #wake = () => {};

  // closed is the code with which the gateway has closed the connection.
  closed;

  // open connects to the gateway with a base URL.
  static async open(baseURL) {
    const opened = new Socket();
    const socket = new WebSocket(`${baseURL.replace('http', 'ws')}/responses`);
    opened.#socket = socket;
    socket.onmessage = ({ data }) => opened.#add(JSON.parse(data));
    await new Promise((resolve, reject) => {
      socket.onopen = resolve;
      socket.onerror = reject;
    });
    socket.onclose = ({ code }) => {
      opened.closed = code;
      opened.#add({ type: 'closed' });
    };
    return opened;
  }

  #add(message) {
    this.#messages.push(message);
    this.#wake();
  }

  // next returns the next message, or { type: 'closed' } after the last one.
  async next() {
    while (this.#messages.length === 0) await new Promise((resolve) => (this.#wake = resolve));
    return this.#messages.shift();
  }

  send(message) {
    this.#socket.send(JSON.stringify(message));
  }

  // create requests a response, and returns its events, or an error.
  async create(input, options) {
    this.send({ type: 'response.create', model: 'strict', input, ...options });
    const events = [];
    do events.push(await this.next());
    while (![...terminal, 'closed'].includes(events.at(-1).type));
    return events;
  }

  // end is create for a caller that needs only the last event.
  async end(input, options) {
    return (await this.create(input, options)).at(-1);
  }

  close() {
    this.#socket.close();
  }
}
