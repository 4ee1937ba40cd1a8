import HHSocketRPC

var configuration = SocketClient.Configuration(servers: [Endpoint(host: "127.0.0.1", port: 7000)])
configuration.hello = HelloPolicy(isRequired: true, sessionToken: { Array("secret-of-ann".utf8) })

let client = SocketClient(configuration: configuration)
client.connect()
print(try await client.data(for: SocketRequest(type: 101)).string)
