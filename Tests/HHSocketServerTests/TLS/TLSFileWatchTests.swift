// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

@testable import HHSocketServer

@Suite struct FileVersionsTests {
    @Test func changesAreSeenOnceEach() throws {
        let folder = try TemporaryFolder()
        let first = try folder.write("one", to: "first")
        let second = folder.file("second")
        var versions = FileVersions(of: [first, second])
        #expect(versions.haveChanged() == false)
        // Another file at the path, and a new file.
        _ = try folder.write("two", to: "first")
        #expect(versions.haveChanged() == true)
        #expect(versions.haveChanged() == false)
        _ = try folder.write("new", to: "second")
        #expect(versions.haveChanged() == true)
        #expect(versions.haveChanged() == false)
        try FileManager.default.removeItem(atPath: second)
        #expect(versions.haveChanged() == true)
        #expect(versions.haveChanged() == false)
    }

    /// Kubernetes replaces a secret like this.
    @Test func linkToAnotherFileIsAChange() throws {
        let folder = try TemporaryFolder()
        let (old, new) = (try folder.write("same", to: "old"), try folder.write("same", to: "new"))
        let link = folder.file("link")
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: old)
        var versions = FileVersions(of: [link])
        try FileManager.default.removeItem(atPath: link)
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: new)
        #expect(versions.haveChanged() == true)
    }
}
