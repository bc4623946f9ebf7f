// A published client of MCP's tasks, npm's @modelcontextprotocol/ext-tasks, over Streamable HTTP. Its argument is JSON:
//
//   modules  the folder of the Node packages
//   url      of the server
//   version  "2025-11-25", or "2026-07-28" for the extension
//   calls    each {tool, arguments, cancel}; with `cancel` the task is cancelled once it is known
//
// It prints an array: of each call its kind, the states that it saw of the task, and the outcome. It answers forms by
// "Ada" and true.

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const { modules, url, version, calls } = JSON.parse(process.argv[2]);
const load = (...path) => import(pathToFileURL(join(modules, '@modelcontextprotocol', ...path)));
const { Client, StreamableHTTPClientTransport } = await load('client', 'dist', 'index.mjs');
const { createTaskSessionFromClient, toolDeclarationFromMcpTool } = await load('ext-tasks', 'dist', 'client', 'index.js');

const INFO = { name: 'tasks-peer', version: '1' };
const CAPABILITIES = { elicitation: {} };
const isModern = version === '2026-07-28';

function answer(request) {
  const fields = Object.entries(request.params.requestedSchema.properties);
  const content = Object.fromEntries(fields.map(([name, field]) => [name, field.type === 'boolean' ? true : 'Ada']));
  return { action: 'accept', content };
}

let sent = 0;

async function rawDispatch(request) {
  const headers = {
    'content-type': 'application/json',
    accept: 'application/json, text/event-stream',
    'mcp-protocol-version': version,
    'mcp-method': request.method,
    'mcp-name': request.params.taskId ?? request.params.name,
  };
  sent += 1;
  const body = JSON.stringify({ ...request, jsonrpc: '2.0', id: sent });
  const response = await fetch(url, { method: 'POST', headers, body });
  return response.json();
}

const client = new Client(INFO, {
  capabilities: CAPABILITIES,
  ...(isModern ? { versionNegotiation: { mode: { pin: version } } } : {}),
});
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const listed = (await client.listTools()).tools;
const tools = new Map(listed.map((tool) => [tool.name, toolDeclarationFromMcpTool(tool)]));
const framing = { protocolVersion: version, clientInfo: INFO, clientCapabilities: CAPABILITIES };
const session = createTaskSessionFromClient(client, {
  endpointId: 'delta-mcp',
  tools: { currentTool: (name) => tools.get(name) },
  onInputRequest: async (request) => answer(request),
  ...(isModern ? { rawDispatch, v2RequestFraming: framing } : {}),
});

async function perform(call) {
  const execution = await session.callTool(call.tool, call.arguments, { task: { preference: 'prefer' } });
  const states = [];
  if (call.cancel && execution.kind === 'task') await execution.cancel();
  const { outcome } = await execution.settle({
    onEvent: (event) => {
      if (event.type === 'task' && states.at(-1) !== event.task.status) states.push(event.task.status);
    },
  });
  const error = outcome.error && { code: outcome.error.code, message: outcome.error.message };
  return { kind: execution.kind, states, status: outcome.status, result: outcome.result, error };
}

const done = [];
for (const call of calls) {
  try {
    done.push(await perform(call));
  } catch (error) {
    done.push({ kind: 'refused', error: { code: error.code, message: error.message } });
  }
}
console.log(JSON.stringify({ capabilities: session.capabilities, calls: done }));
await session.close();
await client.close();
process.exit(0);
