// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketTransferValues
import NIOCore
import TestSupport
import Testing

@testable import HHSocketTransfers

/// Local files of gets.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TransferSinkTests {
    private let folder: TemporaryFolder
    private let files = FaultyFiles()
    private let text = String(repeating: "0123456789", count: 250)

    init() throws { self.folder = try TemporaryFolder() }

    private var file: TransferFile { Self.describe(self.text) }
    private var path: String { self.folder.file("copy") }

    private static func describe(_ text: String) -> TransferFile {
        Array(text.utf8).withUnsafeBytes { TransferFile(of: $0) }
    }

    private func sink(_ path: String? = nil) -> FileSink {
        FileSink(path ?? self.path, what: "get", pieceLength: 1_000, files: self.files)
    }

    /// Examines an unfinished file, in as many steps as necessary.
    private func prepare(_ sink: FileSink) throws(TransferError) -> BegunFile? {
        while true {
            if case .done(let begun) = try sink.prepare() { return begun }
        }
    }

    private func append(_ text: some StringProtocol, to sink: FileSink) throws(TransferError) {
        // The content arrives in parts.
        let middle = text.index(text.startIndex, offsetBy: text.count / 2)
        _ = try sink.append([text[..<middle], text[middle...]].map { ByteBuffer(string: String($0)) })
    }

    private var names: [String] {
        ((try? FileManager.default.contentsOfDirectory(atPath: self.folder.path)) ?? []).sorted()
    }

    private func content(_ path: String) -> String? { try? String(contentsOfFile: path, encoding: .utf8) }

    private func code(_ body: () throws -> Void) -> TransferError.Code? {
        do {
            try body()
            return nil
        } catch {
            return (error as? TransferError)?.code
        }
    }

    @Test func aFileIsHiddenUntilItIsWholeAndThenReplacesTheOldOne() throws {
        _ = try self.folder.write("old", to: "copy")
        #expect(chmod(self.path, 0o640) == 0)
        let sink = self.sink()
        #expect(try self.prepare(sink) == nil)
        try sink.create(self.file)
        self.files.shorten(to: 11)
        try self.append(self.text.prefix(1_700), to: sink)
        #expect(self.names.count == 2 && self.names[0].hasPrefix(".hhsocket-get-"))
        #expect(self.content(self.path) == "old")
        try self.append(self.text.dropFirst(1_700), to: sink)
        #expect(try sink.finish())
        #expect(self.names == ["copy"])
        #expect(self.content(self.path) == self.text)
        #expect(try self.files.status(at: self.path)?.permissions == 0o640)
        // The file, and the folder.
        #expect(self.files.count(.synchronize) == 2)
        #expect(self.files.openCount == 0)
    }

    @Test func unfinishedFileIsFoundAgain() throws {
        let first = self.sink()
        _ = try self.prepare(first)
        try first.create(self.file)
        try self.append(self.text.prefix(1_700), to: first)
        // The death of a process closes it as well.
        first.close()
        let second = self.sink()
        #expect(try self.prepare(second) == BegunFile(file: self.file, length: 1_700))
        try self.append(self.text.dropFirst(1_700), to: second)
        #expect(try second.finish())
        #expect(self.content(self.path) == self.text)
        #expect(self.names == ["copy"])
    }

    @Test func oneThatIsLongerThanTheWholeIsDiscarded() throws {
        let first = self.sink()
        _ = try self.prepare(first)
        try first.create(TransferFile(size: 10, sha256: self.file.sha256))
        try self.append(self.text.prefix(11), to: first)
        first.close()
        let second = self.sink()
        #expect(try self.prepare(second) == nil)
        #expect(self.names == [])
        #expect(self.files.openCount == 0)
    }

    @Test func oneThatIsDamagedIsFoundAtTheEnd() throws {
        let first = self.sink()
        _ = try self.prepare(first)
        try first.create(self.file)
        try self.append("9\(self.text.dropFirst().prefix(1_699))", to: first)
        first.close()
        let second = self.sink()
        #expect(try self.prepare(second)?.length == 1_700)
        try self.append(self.text.dropFirst(1_700), to: second)
        #expect(try !second.finish())
        #expect(self.content(self.path) == nil)
        second.discard()
        #expect(self.names == [])
    }

    @Test func anotherFileReplacesWhatWasBegun() throws {
        let sink = self.sink()
        _ = try self.prepare(sink)
        try sink.create(self.file)
        try self.append(self.text.prefix(1_700), to: sink)
        let other = Self.describe("other")
        try sink.create(other)
        #expect(self.names.count == 1 && self.names[0].hasSuffix("-5-\(other.sha256)"))
        try self.append("other", to: sink)
        #expect(try sink.finish())
        #expect(self.content(self.path) == "other")
    }

    @Test func theSameFileStartsOver() throws {
        let sink = self.sink()
        _ = try self.prepare(sink)
        try sink.create(self.file)
        try self.append("wrong", to: sink)
        try sink.create(self.file)
        try self.append(self.text, to: sink)
        #expect(try sink.finish())
        #expect(self.content(self.path) == self.text)
    }

    @Test func twoCannotFetchToOnePath() throws {
        let first = self.sink()
        _ = try self.prepare(first)
        let late = self.sink()
        _ = try self.prepare(late)
        try first.create(self.file)
        try self.append(self.text.prefix(1_700), to: first)
        #expect(self.code { _ = try self.prepare(self.sink()) } == .fileFailed)
        #expect(self.code { try late.create(self.file) } == .fileFailed)
        // Neither affects the first.
        try self.append(self.text.dropFirst(1_700), to: first)
        #expect(try first.finish())
        #expect(self.content(self.path) == self.text)
        // Now it is free.
        #expect(try self.prepare(late) == nil)
        #expect(self.files.openCount == 0)
    }

    @Test func oneThatIsFinishedWhileAnotherOpensItIsNotWrittenOn() throws {
        let first = self.sink()
        _ = try self.prepare(first)
        try first.create(self.file)
        try self.append(self.text, to: first)
        let second = self.sink()
        // Between opening and locking.
        self.files.before(.lock) { _ = try? first.finish() }
        #expect(try self.prepare(second) == nil)
        #expect(self.content(self.path) == self.text)
        #expect(self.files.openCount == 0)
    }

    @Test func pathsThatAreNoFilesAreRefused() throws {
        let pipe = self.folder.file("pipe")
        #expect(mkfifo(pipe, 0o600) == 0)
        for path in [
            self.folder.path, self.folder.path + "/", pipe, "/dev/null", "", self.folder.file("none/copy"),
            self.folder.file(String(repeating: "n", count: 256)),
        ] {
            #expect(self.code { _ = try self.prepare(self.sink(path)) } == .fileFailed, "\(path)")
        }
        #expect(self.names == ["pipe"])
    }

    @Test func theLongestNameCanBeFetchedTo() throws {
        let sink = self.sink(self.folder.file(String(repeating: "n", count: 255)))
        _ = try self.prepare(sink)
        try sink.create(self.file)
        try self.append(self.text, to: sink)
        #expect(try sink.finish())
        #expect(self.names == [String(repeating: "n", count: 255)])
    }

    @Test(arguments: [(FaultyFiles.Call.write, ENOSPC), (.write, EDQUOT), (.synchronize, ENOSPC), (.open, ENOSPC)])
    func aFullDiskIsReportedAsThat(_ call: FaultyFiles.Call, _ error: CInt) throws {
        let sink = self.sink()
        _ = try self.prepare(sink)
        self.files.fail(call, with: error)
        let code = self.code {
            try sink.create(self.file)
            try self.append(self.text, to: sink)
            _ = try sink.finish()
        }
        #expect(code == .noRoom)
        sink.discard()
        #expect(self.names == [])
        #expect(self.files.openCount == 0)
    }

    @Test(arguments: [FaultyFiles.Call.open, .write, .rename, .truncate])
    func aFolderThatCannotBeWrittenIsReportedAsThat(_ call: FaultyFiles.Call) throws {
        let sink = self.sink()
        _ = try self.prepare(sink)
        self.files.fail(call, with: EROFS)
        let code = self.code {
            try sink.create(self.file)
            try sink.create(self.file)
            try self.append(self.text, to: sink)
            _ = try sink.finish()
        }
        #expect(code == .readOnly)
    }

    @Test(arguments: [FaultyFiles.Call.write, .synchronize, .rename, .truncate, .names, .lock, .statusAtPath, .read])
    func noFailureKeepsAFileOpenOrHarmsTheOldOne(_ call: FaultyFiles.Call) throws {
        _ = try self.folder.write("old", to: "copy")
        let before = self.sink()
        _ = try self.prepare(before)
        try before.create(self.file)
        try self.append(self.text.prefix(100), to: before)
        before.close()
        for count in 0..<4 {
            self.files.heal()
            self.files.fail(call, after: count, with: EIO)
            let sink = self.sink()
            let code = self.code {
                guard let begun = try self.prepare(sink) else { return }
                try sink.create(begun.file)
                try self.append(self.text.prefix(200), to: sink)
            }
            #expect(code == nil || code == .fileFailed)
            sink.close()
            #expect(self.files.openCount == 0)
            #expect(self.content(self.path) == "old")
        }
    }

    @Test func hostileNamesBesideTheFileAreNoTrouble() throws {
        let first = self.sink()
        _ = try self.prepare(first)
        try first.create(self.file)
        first.close()
        let name = try #require(self.names.first)
        let prefix = name.prefix(".hhsocket-get-".count + 33)
        for ending in ["", "-", "x-y", "99999999999999999999-\(self.file.sha256)", "5-\(self.file.sha256)-", "-1-00"] {
            _ = try self.folder.write("x", to: "\(prefix)\(ending)")
        }
        try FileManager.default.createSymbolicLink(
            atPath: self.folder.file("\(prefix)7-\(self.file.sha256)"),
            withDestinationPath: "/etc/passwd"
        )
        let sink = self.sink()
        #expect(try self.prepare(sink)?.length == 0)
        #expect(self.files.openCount == 1)
    }
}
