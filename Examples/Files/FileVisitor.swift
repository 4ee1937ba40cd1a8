// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketTransfers

/// Puts and gets files, and prints the progress.
struct FileVisitor {
    struct WrongUsage: Error, CustomStringConvertible {
        var description: String
    }

    private let client: SocketClient
    private let transfers: TransferClient

    init(of server: Endpoint) {
        var configuration = SocketClient.Configuration(servers: [server])
        // Files are sent in streams.
        configuration.streams = StreamPolicy()
        self.client = SocketClient(configuration: configuration)
        self.transfers = TransferClient(self.client)
    }

    func run(_ command: String, _ arguments: [String]) async throws {
        switch (command, arguments.count) {
        case ("put", 1...2):
            let id = try arguments.count == 2 ? self.id(arguments[1]) : nil
            let put = try await self.follow(self.transfers.put(arguments[0], id: id))
            tell("put \(put.id): \(put.file.size) bytes, \(put.bytesMoved) of them sent")
        case ("get", 2):
            let get = try await self.follow(self.transfers.get(self.id(arguments[0]), to: arguments[1]))
            tell("got \(get.id): \(get.file.size) bytes, \(get.bytesMoved) of them received")
        case ("find", 1):
            let found = try await self.transfers.find(self.id(arguments[0]))
            tell("found \(arguments[0]): \(found.file.size) bytes, SHA-256 \(found.file.sha256)")
        default:
            throw WrongUsage(description: "\(command) has other arguments")
        }
    }

    func close() async { await self.client.close() }

    private func id(_ text: String) throws -> TransferID {
        guard let id = TransferID(text) else { throw WrongUsage(description: "\(text) is no id") }
        return id
    }

    /// Prints each further tenth of a transfer.
    private func follow(_ transfer: Transfer) async throws(TransferError) -> TransferResult {
        var tenths: UInt64 = 0
        for await progress in transfer.progressUpdates where progress.total > 0 {
            let now = progress.completed / max(1, progress.total / 10)
            if now > tenths, now < 10 { tell("\(now)0 %") }
            tenths = now
        }
        return try await transfer.value
    }
}
