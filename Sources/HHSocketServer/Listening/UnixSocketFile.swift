// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import HHSocketSystem
import NIOCore
import NIOPosix

/// The identity of a file, which distinguishes it from a later one at its path.
struct FileIdentity: Hashable, Sendable {
    private var device: UInt64
    private var number: UInt64
    /// Whether it is a socket.
    let isSocket: Bool

    /// Fails if there is no such file.
    init?(path: String) {
        var information = stat()
        guard lstat(path, &information) == 0 else { return nil }
        self.device = UInt64(truncatingIfNeeded: information.st_dev)
        self.number = UInt64(information.st_ino)
        self.isSocket = information.st_mode & S_IFMT == S_IFSOCK
    }
}

/// The file at the path of a Unix domain socket that a server is to listen on.
enum UnixSocketFile {
    /// A file that is not a socket's is never removed.
    struct NoSocket: Error, CustomStringConvertible {
        var description: String { "there is a file that is no socket" }
    }

    /// The time after which a socket that refuses connections is asked once more: a server that is just starting has
    /// bound it, and does not listen yet.
    private static let secondCheck = TimeAmount.milliseconds(50)

    /// Removes the file that a dead server has left.
    ///
    /// - Throws: ``NoSocket`` if it is none; `inUse` if a server may live there: only a refused connection shows that
    ///   none does. One whose queue is full, that is stopped, or that belongs to another user gives other errors.
    static func removeIfStale(_ path: String, _ address: SocketAddress, inUse: any Error) async throws {
        let file = FileIdentity(path: path)
        guard file?.isSocket ?? true else { throw NoSocket() }
        guard await self.refuses(address) else { throw inUse }
        try? await Task.sleep(for: Duration(self.secondCheck))
        guard await self.refuses(address), file == FileIdentity(path: path) else { throw inUse }
        unlink(path)
    }

    private static func refuses(_ address: SocketAddress) async -> Bool {
        do {
            let channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                .connect(to: address)
                .get()
            try? await channel.close()
            return false
        } catch {
            return (error as? IOError).map { [ECONNREFUSED, ENOENT].contains($0.errnoCode) } ?? false
        }
    }
}
