// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocketRPC

/// The sender of the items that the bench measures.
enum StreamDirection: String, ExpressibleByArgument, CaseIterable {
    /// The server.
    case down
    /// The client.
    case up
    /// The client, and the server sends each item back.
    case both

    var kind: StreamKind {
        switch self {
        case .down: .serverStreaming
        case .up: .clientStreaming
        case .both: .bidirectional
        }
    }

    /// The type of a stream, as `hhsocket serve` serves it.
    var type: UInt32 {
        switch self {
        case .down: BuiltIn.streamOfItems
        case .up: BuiltIn.countOfItems
        case .both: BuiltIn.echoStream
        }
    }
}
