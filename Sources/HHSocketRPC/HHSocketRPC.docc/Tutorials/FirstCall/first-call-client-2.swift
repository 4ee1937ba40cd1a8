import HHSocketRPC

let client = SocketClient(configuration: .init(servers: [Endpoint(host: "127.0.0.1", port: 7000)]))
client.connect()

let request = SocketRequest(type: 101, body: "Ann", timeout: .seconds(3))
print(try await client.data(for: request).string)
