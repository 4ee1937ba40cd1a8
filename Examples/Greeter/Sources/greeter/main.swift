import HHSocketRPC
import HHSocketServer

var router = Router()
router.handle(101) { request, context in
    await context.session.push(type: 2001, body: ByteBuffer(string: "welcome"))
    return ByteBuffer(string: "hello, \(String(buffer: request.body))")
}
let server = SocketServer(configuration: .init(port: 0), router: router)
try await server.start()

let client = SocketClient(configuration: .init(servers: server.addresses))
let pushes = client.pushes(ofType: 2001)
client.connect()
print(try await client.data(for: SocketRequest(type: 101, body: "Ann")).string)
for await push in pushes.prefix(1) { print(push.string) }
await server.shutdown()
