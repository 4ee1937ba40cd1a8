import HHSocketRPC
import HHSocketTesting

let format = try WireFormat.company()
let server = try await MockServer(format: format)
server.on(1001, .glued(.push(2001, "news"), .answer("hello")))
