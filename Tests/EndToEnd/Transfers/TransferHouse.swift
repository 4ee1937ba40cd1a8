// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import HHSocketServerTransfers
import HHSocketTransfers
import TestSupport
import Testing

/// A server with a store in a folder, a link to it that may break, and a client of that.
struct TransferHouse {
    let folder: TemporaryFolder
    let server: SocketServer
    let link: CuttingRelay
    let client: SocketClient
    let transfers: TransferClient

    /// The folder of the store.
    var store: String { self.folder.file("store") }
    /// The folder of unfinished files in the store.
    var unfinished: String { "\(self.store)/+unfinished" }

    /// Runs `body`, and ends everything.
    ///
    /// - Parameters:
    ///   - hasTLS: Whether server and client speak TLS.
    ///   - wrap: Makes the served store from the folder's.
    ///   - allow: The bytes that each connection of the link may carry.
    static func with(
        limits: TransferLimits = TransferLimits(),
        hasTLS: Bool = false,
        timeout: Duration = patience,
        wrap: (FolderTransferStore) -> any TransferStore = { $0 },
        authorize: @escaping TransferService.Authorization = { _, _ in },
        allow: @escaping @Sendable (Int) -> CuttingRelay.Allowance = { _ in .unlimited },
        _ body: (TransferHouse) async throws -> Void
    ) async throws {
        let folder = try TemporaryFolder()
        let store = try FolderTransferStore(path: folder.file("store"), limits: limits)
        var router = Router.echo
        router.register(TransferService(store: wrap(store), authorize: authorize))
        var configuration = SocketServer.Configuration()
        if hasTLS { configuration.listeners[0].tls = ServerTLS(identity: try TestCertificate(.server).identity) }
        let server = SocketServer(configuration: configuration, router: router)
        try await server.start()
        let link = try await CuttingRelay(to: try #require(server.address), allow: allow)
        let trust = hasTLS ? try TestAuthority().trust : nil
        let client = Self.client(of: link.endpoint, trusting: trust)
        var options = TransferClient.Options()
        options.timeout = timeout
        let house = TransferHouse(
            folder: folder,
            server: server,
            link: link,
            client: client,
            transfers: TransferClient(client, options: options)
        )
        let result = await Result { try await body(house) }
        await client.close()
        await server.shutdown(gracePeriod: .zero)
        try result.get()
        withExtendedLifetime((folder, link)) {}
    }

    /// Another client of the store.
    ///
    /// - Parameter trust: The authority of its certificate; nil without TLS.
    static func client(of server: Endpoint, trusting trust: TLSTrust? = nil) -> SocketClient {
        .connecting(to: server) { configuration in
            configuration.streams = StreamPolicy()
            guard let trust else { return }
            var tls = ClientTLS()
            tls.trust = trust
            configuration.socket.tls = tls
        }
    }

    /// Writes a file of random bytes.
    ///
    /// - Returns: Its path, and its description.
    func file(_ name: String, _ size: Int, seed: UInt64 = 1) throws -> (path: String, file: TransferFile) {
        var generator = SeededGenerator(seed: seed)
        let bytes = Data(generator.bytes(size))
        let path = self.folder.file(name)
        try bytes.write(to: URL(fileURLWithPath: path))
        return (path, Self.describe(bytes))
    }

    static func describe(_ bytes: Data) -> TransferFile {
        bytes.withUnsafeBytes { TransferFile(of: $0) }
    }

    static func describe(_ path: String) throws -> TransferFile {
        self.describe(try Data(contentsOf: URL(fileURLWithPath: path)))
    }

    /// Loses the client's connection.
    ///
    /// - Parameter allow: The bytes that later connections may carry, by their number from 0.
    func reconnect(allowing allow: @escaping @Sendable (Int) -> CuttingRelay.Allowance) async throws {
        _ = try await self.client.data(for: SocketRequest(type: 101))
        let base = self.link.connectionCount
        self.link.allow { allow($0 - base) }
        self.link.cut()
    }

    /// The names of the visible files in the store.
    func visible() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: self.store).filter { !$0.hasPrefix("+") }.sorted()
    }

    /// The hidden files of gets in the folder.
    func hidden() throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: self.folder.path).filter { $0.hasPrefix(".") }
    }

    /// Waits until the store has no unfinished file.
    func nothingUnfinished() async throws {
        try await eventually("nothing unfinished") {
            try FileManager.default.contentsOfDirectory(atPath: self.unfinished).isEmpty
        }
    }

    /// Waits until a transfer has moved at least `count` bytes, or has ended.
    func progress(of transfer: Transfer, atLeast count: UInt64) async throws {
        try await eventually("\(count) bytes of progress") {
            transfer.progress.completed >= count || transfer.result != nil
        }
    }
}

/// Returns the error of a transfer that fails.
func failure(of transfer: Transfer, _ location: SourceLocation = #_sourceLocation) async throws -> TransferError {
    let outcome = await Result { try await transfer.value }
    guard case .failure(let error) = outcome, let error = error as? TransferError else {
        Issue.record("it did not fail: \(outcome)", sourceLocation: location)
        throw Unexpected(description: "no failure")
    }
    return error
}

/// Parses a literal that is an id.
func id(_ text: String) -> TransferID {
    guard let id = TransferID(text) else { preconditionFailure("\(text) is no id") }
    return id
}
