// SPDX-License-Identifier: Apache-2.0
// Server streaming of grpc-swift 2: grpc-swift-client PORT BODY WARM_UP SECONDS SERVER_PID
import CPeer
import Foundation
import GRPCCore
import GRPCNIOTransportHTTP2Posix

let run = peer_parse(CommandLine.argc, CommandLine.unsafeArgv)
let client = GRPCClient(
    transport: try .http2NIOPosix(
        target: .ipv4(address: "127.0.0.1", port: Int(run.port)),
        transportSecurity: .plaintext
    )
)

try await withThrowingTaskGroup(of: Void.self) { group in
    group.addTask { try await client.runConnections() }
    let size = "\(run.body)"
    try await client.serverStreaming(
        request: ClientRequest(message: Array(size.utf8)),
        descriptor: MethodDescriptor(fullyQualifiedService: "peer.Items", method: "Stream"),
        serializer: RawSerializer(),
        deserializer: RawDeserializer(),
        options: .defaults
    ) { response in
        var run = run
        for try await item in response.messages {
            if peer_item(&run, item.count) == 0 { exit(0) }
        }
    }
    exit(1)
}
