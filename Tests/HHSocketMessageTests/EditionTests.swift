// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import HHSocketMessage
import Testing

/// The effects of the features of editions, byte by byte.
@Suite struct EditionTests {
    @Test func messagesAreGroupsWhereTheFileSaysSo() throws {
        var post = Edition_Year2024_Post()
        post.title = "a"
        #expect(!post.hasKind)
        post.kind = .first
        post.notes = [.init()]
        post.note.content = Data([1])
        post.Edition_Year2024_pinned = .init()
        let bytes = try post.serializedBytes()
        #expect(
            bytes == [0x0A, 0x01, 0x61, 0x18, 0x01, 0x23, 0x24, 0x2A, 0x03, 0x0A, 0x01, 0x01, 0xA3, 0x06, 0xA4, 0x06]
        )
        #expect(try Edition_Year2024_Post(serializedBytes: bytes) == post)
        // Without presence, zero is not sent. A number that a closed enumeration does not declare is unknown.
        #expect(try Edition_Year2024_Post(serializedBytes: [0x10, 0x00]).serializedBytes() == [])
        let unknown = try Edition_Year2024_Post(serializedBytes: [0x18, 0x09])
        #expect(!unknown.hasKind && unknown.unknownFields.data == Data([0x18, 0x09]))
    }
}
