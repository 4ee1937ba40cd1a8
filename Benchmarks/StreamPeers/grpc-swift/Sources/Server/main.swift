// SPDX-License-Identifier: Apache-2.0
// Server streaming of grpc-swift 2: grpc-swift-server PORT
import CPeer
import GRPCCore
import GRPCNIOTransportHTTP2Posix

struct Items: RegistrableRPCService {
    func registerMethods<Transport: ServerTransport>(with router: inout RPCRouter<Transport>) {
        router.registerHandler(
            forMethod: MethodDescriptor(fullyQualifiedService: "peer.Items", method: "Stream"),
            deserializer: RawDeserializer(),
            serializer: RawSerializer()
        ) { request, _ in
            let request = try await ServerRequest(stream: request)
            let size = Int(String(decoding: request.message, as: UTF8.self)) ?? 0
            return StreamingServerResponse { writer in
                let item = [UInt8](repeating: UInt8(ascii: "x"), count: size)
                while true { try await writer.write(item) }
            }
        }
    }
}

let port = Int(CommandLine.arguments.last ?? "") ?? 0
let server = GRPCServer(
    transport: .http2NIOPosix(address: .ipv4(host: "127.0.0.1", port: port), transportSecurity: .plaintext),
    services: [Items()]
)
try await withThrowingTaskGroup(of: Void.self) { group in
    group.addTask { try await server.serve() }
    _ = try await server.listeningAddress
    peer_ready(CInt(port))
    try await group.waitForAll()
}
