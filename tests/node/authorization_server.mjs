// A published authorization server, npm's oidc-provider, as MCP servers and clients meet one. Its one argument is JSON:
//
//   modules    the folder of the Node packages
//   port       on 127.0.0.1; the issuer is this address
//   format     of access tokens: "jwt", or "opaque" for resource servers that introspect
//   algorithm  that signs access tokens, such as "RS256"
//   scopes     that every resource has
//   seconds    for which access tokens are valid
//   clients    that are registered beforehand
//   documents  client id metadata documents by their https addresses, which are fetched from here
//
// It makes its keys when it starts, so that one which is started again on the same port has rotated them. Users log in by
// its own pages for development: any name and password will do.

import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const { modules, port, format, algorithm, scopes, seconds, clients, documents } = JSON.parse(process.argv[2]);
const { default: Provider } = await import(pathToFileURL(join(modules, 'oidc-provider', 'lib', 'index.js')));

const KEY_OPTIONS = {
  RS256: ['rsa', { modulusLength: 2048 }],
  ES256: ['ec', { namedCurve: 'P-256' }],
  EdDSA: ['ed25519', {}],
};

function signingKey(alg) {
  const { privateKey } = generateKeyPairSync(...KEY_OPTIONS[alg]);
  return { ...privateKey.export({ format: 'jwk' }), alg, use: 'sig' };
}

const issuer = `http://127.0.0.1:${port}`;
const provider = new Provider(issuer, {
  clients,
  jwks: { keys: Object.keys(KEY_OPTIONS).map(signingKey) },
  cookies: { keys: ['a key of the tests'] },
  scopes: ['openid', 'offline_access', ...scopes],
  pkce: { required: () => true },
  clientDefaults: { grant_types: ['authorization_code', 'refresh_token'] },
  ttl: { AccessToken: seconds, ClientCredentials: seconds },
  findAccount: (context, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
  issueRefreshToken: (context, client) => client.grantTypeAllowed('refresh_token'),
  fetch: async (url) => {
    const document = documents[String(url)];
    return document ? Response.json(document) : new Response('', { status: 404 });
  },
  features: {
    devInteractions: { enabled: true },
    clientCredentials: { enabled: true },
    clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
    deviceFlow: { enabled: true },
    introspection: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: () => true,
      getResourceServerInfo: (context, resource) => ({
        scope: scopes.join(' '),
        audience: resource,
        accessTokenFormat: format,
        jwt: { sign: { alg: algorithm } },
      }),
    },
  },
});

createServer(provider.callback()).listen(port, '127.0.0.1');
