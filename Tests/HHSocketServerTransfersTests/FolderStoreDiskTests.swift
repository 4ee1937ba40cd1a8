// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketServer
import HHSocketTesting
import HHSocketTransferValues
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServerTransfers

/// A store on the files of this machine.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct FolderStoreDiskTests {
    private let folder: TemporaryFolder
    private let path: String

    init() throws {
        self.folder = try TemporaryFolder()
        self.path = self.folder.file("store")
    }

    private func names(in name: String = "") -> Set<String> {
        Set((try? FileManager.default.contentsOfDirectory(atPath: "\(self.path)/\(name)")) ?? [])
    }

    private func bytes(of name: String) -> [UInt8]? {
        FileManager.default.contents(atPath: "\(self.path)/\(name)").map { Array($0) }
    }

    @Test func filesArePutAndGot() async throws {
        let store = try FolderTransferStore(path: self.path)
        for size in [0, 1, 3_000_000] {
            let bytes = content(size)
            try await store.put("a", bytes, writer: UInt64(size) + 1, pieceLength: 100_000)
            #expect(self.bytes(of: "a") == bytes)
            #expect(try await store.get("a", pieceLength: 300_000) == bytes)
        }
        #expect(self.names() == ["a", "+unfinished", "+hashes"])
        #expect(self.names(in: "+unfinished").isEmpty)
        let modified = try #require(try await store.find("a")?.modified)
        #expect(abs(modified / .seconds(1) - Date().timeIntervalSince1970) < 600)
    }

    @Test func aPutContinuesInAnotherProcess() async throws {
        let bytes = content(3_000_000)
        try await FolderTransferStore(path: self.path).interruptPut("a", bytes, after: 1_234_567)
        let store = try FolderTransferStore(path: self.path)
        #expect(try await store.put("a", bytes, pieceLength: 100_000) == 1_234_567)
        #expect(try await store.get("a", pieceLength: 1 << 20) == bytes)
    }

    @Test func theHashOfAFileOutlivesTheProcess() async throws {
        try await FolderTransferStore(path: self.path).put("a", content(1_000))
        let record = try #require(self.bytes(of: "+hashes/a").flatMap { HashRecord(bytes: $0) })
        var status = stat()
        #expect(lstat("\(self.path)/a", &status) == 0)
        #expect(record.key.inode == UInt64(status.st_ino))
        #expect(record.digest == TransferFile(of: content(1_000)).sha256)
        // The hash is of the current file.
        let store = try FolderTransferStore(path: self.path)
        let known = try store.withRoot { root in
            try store.knownHash(of: "a", store.fileSystem.status(of: "a", in: root), in: root)
        }
        #expect(known == record)
    }

    @Test func linksPipesAndFoldersAreNotServed() async throws {
        let store = try FolderTransferStore(path: self.path)
        let secret = try self.folder.write("secret", to: "secret")
        #expect(symlink(secret, "\(self.path)/link") == 0)
        #expect(symlink("nowhere", "\(self.path)/dangling") == 0)
        #expect(mkfifo("\(self.path)/pipe", 0o600) == 0)
        #expect(mkdir("\(self.path)/folder", 0o700) == 0)
        for id in ["link", "dangling", "pipe", "folder"] as [TransferID] {
            #expect(try await store.find(id) == nil)
            await expectFailure(.notFound) { _ = try await store.open(id) }
        }
        for id in ["link", "dangling", "pipe"] as [TransferID] {
            try await store.put(id, content(10))
            #expect(try await store.get(id) == content(10))
        }
        await expectFailure(.storeFailed) { try await store.put("folder", content(10)) }
        #expect(try String(contentsOfFile: secret, encoding: .utf8) == "secret")
        #expect(self.names(in: "+unfinished").isEmpty)
    }

    @Test func linksInsteadOfItsFoldersAreNotFollowed() async throws {
        #expect(mkdir(self.path, 0o700) == 0)
        let elsewhere = self.folder.file("elsewhere")
        #expect(mkdir(elsewhere, 0o700) == 0)
        #expect(symlink(elsewhere, "\(self.path)/+unfinished") == 0)
        #expect(symlink(elsewhere, "\(self.path)/+hashes") == 0)
        let store: FolderTransferStore
        do {
            store = try FolderTransferStore(path: self.path)
        } catch {
            // The store may reject the beginning.
            #expect(error.code == .storeFailed)
            return
        }
        await expectFailure(.storeFailed) { try await store.put("a", content(10)) }
        #expect(try FileManager.default.contentsOfDirectory(atPath: elsewhere).isEmpty)
    }

    @Test func theFolderIsMadeIfItsParentExists() throws {
        _ = try FolderTransferStore(path: self.path)
        #expect(FileManager.default.fileExists(atPath: self.path))
        for path in [self.folder.file("no/parent"), try self.folder.write("x", to: "file"), "", "/dev/null"] {
            #expect(throws: TransferError.self) { try FolderTransferStore(path: path) }
        }
        #expect(!FileManager.default.fileExists(atPath: self.folder.file("no")))
    }

    #if os(Linux)
    /// The files of the store that this process has open for writing.
    private func openForWriting() -> [String] {
        let descriptors = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
        return descriptors.compactMap { descriptor in
            guard let path = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(descriptor)"),
                path.hasPrefix(self.path), let number = Int32(descriptor)
            else { return nil }
            return fcntl(number, F_GETFL) & O_ACCMODE == O_RDONLY ? nil : path
        }
    }

    @Test func noFileIsOpenForWritingWithoutAPut() async throws {
        let store = try FolderTransferStore(path: self.path)
        try await store.put("a", content(100))
        try await store.interruptPut("b", content(100), after: 10)
        let unfinished = try await store.beginUnfinished(TransferPut("c", content(100))).writer
        #expect(self.openForWriting().count == 1)
        await unfinished.close()
        await expectFailure(.wrongHash) {
            let wrong = try await store.beginUnfinished(TransferPut("d", content(100))).writer
            try await wrong.append(content(100, seed: 8), from: 0)
            do {
                try await wrong.finish()
            } catch {
                await wrong.close()
                throw error
            }
        }
        #expect(self.openForWriting() == [])
    }

    @Test func aDiskThatIsFull() async throws {
        #expect(mkdir(self.path, 0o700) == 0)
        // Not every machine lets a test mount something.
        guard mount("tmpfs", self.path, "tmpfs", 0, "size=1m") == 0 else { return }
        defer { umount2(self.path, Int32(MNT_DETACH)) }
        let store = try FolderTransferStore(path: self.path)
        try await store.put("a", content(300_000))
        await expectFailure(.noRoom) { try await store.put("b", content(3_000_000), pieceLength: 50_000) }
        #expect(self.names(in: "+unfinished").isEmpty)
        #expect(self.names().filter { !$0.hasPrefix("+") } == ["a"])
        try await store.put("b", content(500_000), pieceLength: 50_000)
        #expect(try await store.get("b", pieceLength: 50_000) == content(500_000))
        // Then the file system becomes read-only.
        try await store.interruptPut("c", content(1_000), after: 400)
        #expect(mount("tmpfs", self.path, "tmpfs", UInt(MS_REMOUNT | MS_RDONLY), "size=1m") == 0)
        await expectFailure(.readOnly) { try await store.put("c", content(1_000)) }
        await expectFailure(.readOnly) { try await store.put("d", content(1_000)) }
        #expect(try await store.get("a", pieceLength: 50_000) == content(300_000))
        #expect(mount("tmpfs", self.path, "tmpfs", UInt(MS_REMOUNT), "size=1m") == 0)
        #expect(try await store.put("c", content(1_000)) == 400)
    }
    #endif
}
