// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import Testing

@testable import HHSocketServer

@Suite struct KeptRequestTests {
    private func head(_ target: String, _ lines: [String]) throws -> OpeningRequestHead {
        var reader = OpeningRequestReader()
        let text = (["GET \(target) HTTP/1.1", "Host: a"] + lines).joined(separator: "\r\n") + "\r\n\r\n"
        reader.append(ByteBuffer(string: text))
        return try #require(try reader.next())
    }

    @Test(arguments: ["/", "/a/b?c=d", "/?", "/a?b?c", "http://h:1/x?y"])
    func requestIsGivenAsItCame(_ target: String) throws {
        let lines = ["Cookie: a=b; c:d", "Empty:", "Twice: 1", "twice: 2", "Tab: a\tb", "X: Ünïcode"]
        let head = try self.head(target, lines)
        let (kept, direct) = (KeptRequest(head).request, WebSocketListening.Request(head))
        #expect(kept.path == direct.path)
        #expect(kept.query == direct.query)
        #expect(kept.headers.map(\.name) == direct.headers.map(\.name))
        #expect(kept.headers.map(\.value) == direct.headers.map(\.value))
        #expect(kept.headers.count == 7)
        #expect(kept.header("COOKIE") == "a=b; c:d")
    }

    @Test func itsMemoryIsThatOfItsText() throws {
        let head = try self.head("/a?b", ["Cookie: " + String(repeating: "c", count: 10_000)])
        #expect((10_000..<10_200).contains(KeptRequest(head).resource.bytes))
    }
}
