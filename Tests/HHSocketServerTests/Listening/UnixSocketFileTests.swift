// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import HHSocketServer

/// A second server at the path of a Unix domain socket.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct UnixSocketFileTests {
    private let folder: TemporaryFolder
    private let path: String

    init() throws {
        self.folder = try TemporaryFolder()
        self.path = self.folder.file("s")
    }

    private func start(at path: String) async throws {
        let server = SocketServer(configuration: .init(unixPath: path), router: Router())
        try await server.start()
        await server.shutdown(gracePeriod: .zero)
    }

    /// A listening socket that accepts nothing, and whose queue is full.
    private func full() throws -> [CInt] {
        let address = try SocketAddress(unixPath: self.path)
        func make() throws -> CInt {
            #if canImport(Glibc)
            let descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0)
            #else
            let descriptor = socket(AF_UNIX, SOCK_STREAM, 0)
            #endif
            try #require(descriptor >= 0)
            return descriptor
        }
        var descriptors = [try make()]
        let listening = descriptors[0]
        let status = address.withSockAddr { bind(listening, $0, socklen_t($1)) }
        try #require(status == 0)
        try #require(listen(listening, 0) == 0)
        while true {
            let client = try make()
            descriptors.append(client)
            _ = fcntl(client, F_SETFL, O_NONBLOCK)
            if address.withSockAddr({ connect(client, $0, socklen_t($1)) }) != 0 { return descriptors }
        }
    }

    /// It is started again because it is overloaded.
    @Test func thatOfAServerWhoseQueueIsFullStays() async throws {
        let descriptors = try self.full()
        defer { for descriptor in descriptors { close(descriptor) } }
        let before = FileIdentity(path: self.path)
        let error = await #expect(throws: SocketError.self) { try await self.start(at: self.path) }
        #expect(error?.code == .bindFailed)
        #expect(error?.message.hasSuffix("another server listens there, choose another path") == true)
        #expect(before != nil && before == FileIdentity(path: self.path))
    }

    @Test func aPathMayBeAsLongAsTheSystemTakes() async throws {
        let longest = MemoryLayout.size(ofValue: sockaddr_un().sun_path) - 1
        let folder = self.folder.file("")
        let path = folder + String(repeating: "x", count: longest - folder.utf8.count)
        #expect(path.utf8.count == longest)
        try await self.start(at: path)
        let error = await #expect(throws: SocketError.self) { try await self.start(at: path + "x") }
        let reason = "the path has \(longest + 1) bytes, and that of a Unix domain socket may have \(longest)"
        #expect(error?.message.hasSuffix(reason) == true)
    }

    @Test func aFileThatIsNoSocketAndAFolderThatIsMissingAreNamedInWords() async throws {
        let file = try self.folder.write("precious", to: "file")
        let error = await #expect(throws: SocketError.self) { try await self.start(at: file) }
        #expect(error?.message == "cannot listen on unix:\(file): there is a file that is no socket")
        let missing = await #expect(throws: SocketError.self) { try await self.start(at: self.folder.file("none/s")) }
        #expect(missing?.message.hasSuffix(": its folder does not exist") == true)
    }
}
