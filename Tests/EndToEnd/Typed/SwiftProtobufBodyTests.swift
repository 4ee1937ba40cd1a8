// SPDX-License-Identifier: Apache-2.0
import GeneratedSamples
import HHSocketRPC
import HHSocketServer
import SwiftProtobuf
import SwiftProtobufSamples
import TestSupport
import Testing

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Returns pieces of files, with HHSocket's messages.
private struct OurTransfer: GeneratedSamples.Files_Transfer.ServiceProtocol {
    typealias File = GeneratedSamples.Files_File
    typealias Upload = GeneratedSamples.Files_Upload
    typealias Piece = GeneratedSamples.Files_Piece
    typealias PieceRequest = GeneratedSamples.Files_PieceRequest

    func begin(_ request: File, context: ServerContext) async throws -> Upload {
        var upload = Upload()
        upload.id = request.length
        return upload
    }

    func send(_ request: Piece, context: ServerContext) async throws -> Upload {
        var upload = Upload()
        upload.offset = request.offset + UInt64(request.bytes.count)
        return upload
    }

    func fetch(_ request: PieceRequest, context: ServerContext) async throws -> Piece {
        var piece = Piece()
        piece.offset = request.offset
        piece.bytes = Data(request.name.utf8)
        return piece
    }

    func sendAll(_ requests: RequestMessages<Piece>, context: ServerContext) async throws -> Upload {
        var upload = Upload()
        for try await piece in requests {
            guard piece.offset == upload.offset else { throw StatusError(.illegalFormat) }
            upload.offset += UInt64(piece.bytes.count)
        }
        return upload
    }
}

/// Returns pieces of files, with swift-protobuf's messages.
private struct TheirTransfer: SwiftProtobufSamples.Files_Transfer.ServiceProtocol {
    typealias File = SwiftProtobufSamples.Files_File
    typealias Upload = SwiftProtobufSamples.Files_Upload
    typealias Piece = SwiftProtobufSamples.Files_Piece
    typealias PieceRequest = SwiftProtobufSamples.Files_PieceRequest

    func begin(_ request: File, context: ServerContext) async throws -> Upload {
        var upload = Upload()
        upload.id = request.length
        return upload
    }

    func send(_ request: Piece, context: ServerContext) async throws -> Upload {
        var upload = Upload()
        upload.offset = request.offset + UInt64(request.bytes.count)
        return upload
    }

    func fetch(_ request: PieceRequest, context: ServerContext) async throws -> Piece {
        var piece = Piece()
        piece.offset = request.offset
        piece.bytes = Data(request.name.utf8)
        return piece
    }

    func sendAll(_ requests: RequestMessages<Piece>, context: ServerContext) async throws -> Upload {
        var upload = Upload()
        for try await piece in requests {
            guard piece.offset == upload.offset else { throw StatusError(.illegalFormat) }
            upload.offset += UInt64(piece.bytes.count)
        }
        return upload
    }
}

/// Services with messages of swift-protobuf, from the same `.proto` as services with HHSocket's messages.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SwiftProtobufBodyTests {
    @Test func theirClientCallsOurServer() async throws {
        var router = Router()
        router.register(OurTransfer())
        try await Pair.with(.standard, router: router) { client, _ in
            let transfer = SwiftProtobufSamples.Files_Transfer.Client(client)
            let upload = try await transfer.send(
                .with {
                    $0.offset = 7; $0.bytes = Data([1, 2, 3])
                }
            )
            #expect(upload.offset == 10)
            let piece = try await transfer.fetch(.with { $0.name = "a name" })
            #expect(piece.bytes == Data("a name".utf8))
        }
    }

    @Test func ourClientCallsTheirServer() async throws {
        var router = Router()
        router.register(TheirTransfer())
        try await Pair.with(.standard, router: router) { client, _ in
            let transfer = GeneratedSamples.Files_Transfer.Client(client)
            var file = GeneratedSamples.Files_File()
            file.length = 1 << 40
            let upload = try await transfer.begin(file)
            #expect(upload.id == 1 << 40)
        }
    }

    @Test func malformedMessageIsAnErrorHereToo() async throws {
        var router = Router()
        router.register(TheirTransfer())
        router.handleSynchronously(GeneratedSamples.Files_Transfer.Methods.fetch.type) { request, _ in request.body }
        try await Pair.with(.standard, router: router) { client, _ in
            let malformed = SocketRequest(type: 301, body: [0xFF] as [UInt8])
            let refused = await #expect(throws: SocketError.self) { try await client.data(for: malformed) }
            #expect(refused?.code == .protobufFailed)
            // The answer has the name, a string, in place of the offset, a number: an unknown field to swift-protobuf.
            let transfer = SwiftProtobufSamples.Files_Transfer.Client(client)
            let piece = try await transfer.fetch(.with { $0.name = "a name" })
            #expect(!piece.unknownFields.data.isEmpty)
        }
    }
}
