// The TypeScript clients, of the SDK's version 1 or of version 2's own package: the content and structured content of
// a result, which programs pass to their model. It speaks as conversation.py says, from the folder of the package.

const readline = require("node:readline");
const installed = require("node:module").createRequire(`${process.cwd()}/`);

function library() {
  try {
    return { ...installed("@modelcontextprotocol/client"), ...installed("@modelcontextprotocol/client/stdio") };
  } catch {
    const sdk = "@modelcontextprotocol/sdk/client";
    return { ...installed(`${sdk}/index.js`), ...installed(`${sdk}/stdio.js`) };
  }
}

async function main() {
  const { Client, StdioClientTransport } = library();
  const [command, ...args] = process.argv.slice(2);
  const client = new Client({ name: "peer", version: "1" });
  await client.connect(new StdioClientTransport({ command, args }));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const call = JSON.parse(line);
    const result = await client.callTool({ name: call.tool, arguments: call.arguments });
    const parts = result.content.map((block) => (block.type === "text" ? block.text : block));
    console.log(JSON.stringify("structuredContent" in result ? [...parts, result.structuredContent] : parts));
  }
  await client.close();
}

main();
