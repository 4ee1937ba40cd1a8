// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketServerTransfers

/// Keeps files in a folder. Any client may put and get, but none may replace an existing file.
struct FileServer {
    /// The largest file, in bytes.
    static let maximumSize: UInt64 = 1 << 30

    private let store: FolderTransferStore

    init(folder: String) throws {
        var limits = TransferLimits()
        limits.maximumBytesPerIdentity = Self.maximumSize
        self.store = try FolderTransferStore(path: folder, limits: limits)
    }

    /// Opens the server at a port of this machine; 0 picks a free one.
    func open(port: Int) async throws -> SocketServer {
        var router = Router()
        router.register(
            TransferService(store: self.store) { [store] request, _ in
                guard request.method == .put, let there = try await store.find(request.id) else { return }
                // A client whose last answer was lost sends the same content again. It may know the hash only later.
                let isSame = request.size == there.file.size && [nil, there.file.sha256].contains(request.sha256)
                guard isSame else { throw TransferError(.denied, "\(request.id) is there already") }
            }
        )
        let server = SocketServer(configuration: .init(listeners: [ServerListener(port: port)]), router: router)
        try await server.start()
        return server
    }
}
