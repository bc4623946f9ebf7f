// The client of the official TypeScript SDK: starts the server that its arguments name, and prints what it saw as JSON.
// It runs in the folder whose node_modules has the SDK.

const installed = require("node:module").createRequire(`${process.cwd()}/`);
const { Client } = installed("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = installed("@modelcontextprotocol/sdk/client/stdio.js");

async function main() {
  const [command, ...args] = process.argv.slice(2);
  const client = new Client({ name: "official", version: "1" });
  await client.connect(new StdioClientTransport({ command, args }));
  const call = (name, values) => client.callTool({ name, arguments: values });
  const seen = {
    server: client.getServerVersion(),
    capabilities: client.getServerCapabilities(),
    tools: (await client.listTools()).tools,
    searched: await call("search", { query: "volumes" }),
    listed: await call("list_dir", {}),
    failed: await call("fail", {}),
    unknown: await call("nonexistent_tool", {}).then(
      () => null,
      (error) => error.message,
    ),
    afterwards: await call("list_dir", {}),
  };
  console.log(JSON.stringify(seen));
  await client.close();
}

main();
