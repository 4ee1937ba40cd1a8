import HHSocketRPC
import HHSocketTesting

let format = try WireFormat.company()
let server = try await MockServer(format: format)
server.on(1001, .glued(.push(2001, "news"), .answer("hello")))

var configuration = SocketClient.Configuration(servers: [server.endpoint])
configuration.socket.wireFormat = format
let client = SocketClient(configuration: configuration)
let pushes = client.pushes(ofType: 2001)
client.connect()
print(try await client.data(for: SocketRequest(type: 1001, body: "hi")).string)
for await push in pushes.prefix(1) { print(push.string) }
