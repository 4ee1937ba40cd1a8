// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketServer
import HHSocketServerTransfers
import HHSocketTransfers
import TestSupport
import Testing

struct NewsStore: TransferStore {
    let folder: FolderTransferStore
    let today: @Sendable () -> TransferID

    private func resolve(_ id: TransferID) -> TransferID { id.description == "today" ? self.today() : id }

    func find(_ id: TransferID) async throws -> StoredFile? { try await self.folder.find(self.resolve(id)) }

    func open(_ id: TransferID) async throws -> any TransferReader { try await self.folder.open(self.resolve(id)) }

    func begin(
        _ put: TransferPut,
        onEnd: @escaping @Sendable (any Error) -> Void
    ) async throws -> TransferBeginning {
        guard put.id.description != "today" else { throw TransferError(.denied, "put the news of a day instead") }
        return try await self.folder.begin(put, onEnd: onEnd)
    }

    func discard(_ id: TransferID, writer: UInt64) async throws -> Bool {
        try await self.folder.discard(id, writer: writer)
    }
}

/// The examples of the server's part of `Transfers.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TransferServerGuideTests {
    @Test func everyExampleOfThePartIsInThisFile() throws {
        let part = try DocumentationPage(guide: "Transfers", section: "Transfers of a server")
        #expect(try part.shortcomings() == [])
    }

    @Test func service() async throws {
        let temporaryFolder = try TemporaryFolder()
        let folder = temporaryFolder.file("store")

        let store = try FolderTransferStore(path: folder)
        var router = Router()
        router.register(
            TransferService(store: store) { request, context in
                guard let user = context.session.identity else { throw TransferError(.denied, "sign in first") }
                guard request.method == .get || request.id.description.hasPrefix("\(user).") else {
                    throw TransferError(.denied, "\(request.id) is not yours")
                }
            }
        )
        let server = SocketServer(configuration: .init(), router: router)
        try await server.start()
        let client = TransferHouse.client(of: try #require(server.address))
        let error = try await failure(of: TransferClient(client).put(ByteBuffer(string: "x"), id: id("ann.x")))
        #expect(error.code == .denied && error.message.contains("sign in first"), "\(error)")
        await client.close()
        await server.shutdown(gracePeriod: .zero)
        withExtendedLifetime(temporaryFolder) {}
    }

    @Test func limits() async throws {
        let temporaryFolder = try TemporaryFolder()
        let folder = temporaryFolder.file("store")
        var limits = TransferLimits()
        limits.maximumFilesPerIdentity = 4
        limits.maximumBytesPerIdentity = 1 << 30
        limits.lifetime = .seconds(86_400)
        let bounded = try FolderTransferStore(path: folder, limits: limits)
        #expect(bounded.path == folder)
        withExtendedLifetime(temporaryFolder) {}
    }

    @Test func newsAreLinks() async throws {
        try await TransferHouse.with(wrap: { NewsStore(folder: $0) { id("monday") } }) { house in
            _ = try await house.transfers.put(ByteBuffer(string: "rain"), id: id("monday")).value
            #expect(try await house.transfers.data(id("today")) == ByteBuffer(string: "rain"))
            let error = try await failure(of: house.transfers.put(ByteBuffer(string: "sun"), id: id("today")))
            #expect(error.code == .denied && error.message.contains("of a day instead"), "\(error)")
        }
    }

    @Test func typeNumbers() async throws {
        let temporaryFolder = try TemporaryFolder()
        let store = try FolderTransferStore(path: temporaryFolder.file("store"))
        var router = Router()
        let silent = try await SilentPort(host: "127.0.0.1")
        let client = TransferHouse.client(of: silent.endpoint)

        let types = TransferTypes(first: 5_000)
        router.register(TransferService(store: store, types: types) { _, _ in })
        let others = TransferClient(client, types: types)
        await client.close()

        let server = SocketServer(configuration: .init(), router: router)
        try await server.start()
        let second = TransferHouse.client(of: try #require(server.address))
        let usual = TransferClient(second)
        #expect(try await failure(of: usual.put(ByteBuffer(string: "x"))).code == .noStore)
        let put = try await TransferClient(second, types: types).put(ByteBuffer(string: "x")).value
        #expect(put.file.size == 1)
        await second.close()
        await server.shutdown(gracePeriod: .zero)
        withExtendedLifetime((temporaryFolder, others)) {}
    }
}
