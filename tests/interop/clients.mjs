// The official TypeScript clients, one of each era of the protocol, behind one face.
import { Client as Stateless } from '@modelcontextprotocol/client';
import { StdioClientTransport as StatelessStdio } from '@modelcontextprotocol/client/stdio';
import { Client as Handshake } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport as HandshakeStdio } from '@modelcontextprotocol/sdk/client/stdio.js';

const self = { name: 'interop', version: '1' };

export const eras = {
  'handshake (2025-11-25)': {
    client: () => new Handshake(self),
    transport: (server) => new HandshakeStdio(server),
    call: (client, params, options) => client.callTool(params, undefined, options),
    era: () => undefined,
  },
  'stateless (2026-07-28)': {
    client: () => new Stateless(self, { versionNegotiation: { mode: { pin: '2026-07-28' } } }),
    transport: (server) => new StatelessStdio(server),
    call: (client, params, options) => client.callTool(params, options),
    era: (client) => client.getNegotiatedProtocolVersion(),
  },
};

// connect starts `soma mcp` in a folder for the time of a test, and returns what that needs of it.
export async function connect(t, kind, { soma, home, folder, args = [] }) {
  const transport = kind.transport({
    command: soma, args: ['mcp', ...args], cwd: folder, stderr: 'pipe',
    env: { PATH: process.env.PATH, HOME: home, SOMA_HOME: home },
  });
  const client = kind.client();
  t.after(() => client.close());
  await client.connect(transport);
  const closed = new Promise((resolve) => { client.onclose = resolve; });
  const call = (name, args = {}, options) => kind.call(client, { name, arguments: args }, options);
  return {
    client, call, closed, pid: transport.pid, era: kind.era(client),
    run: (code, more = {}) => call('python_execute', { code, ...more }),
  };
}

// read takes a result apart: the first line is JSON, what follows is output.
export function read(result) {
  const text = result.content[0].text;
  const cut = text.indexOf('\n');
  const line = cut < 0 ? text : text.slice(0, cut);
  return { ...JSON.parse(line), output: cut < 0 ? '' : text.slice(cut + 1), failed: result.isError === true };
}
