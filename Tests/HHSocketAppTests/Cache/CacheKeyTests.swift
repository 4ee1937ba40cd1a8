// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketRPC
import NIOCore
import TestSupport
import Testing

@testable import HHSocketApp

/// The equality of requests, and the kept parts of an answer.
@Suite(.timeLimit(.minutes(5))) struct CacheKeyTests {
    private func request(_ change: (inout APIRequest<ByteBuffer>) -> Void) -> APIRequest<ByteBuffer> {
        var request = APIRequest(SocketRequest(type: 101, body: "7"))
        change(&request)
        return request
    }

    @Test func aKeyIsTypeBodyAndTheHeadersNamedAsSignificant() {
        let plain = self.request { _ in }
        #expect(plain.key == self.request { _ in }.key)
        #expect(plain.key != self.request { $0.request.type = 102 }.key)
        #expect(plain.key != self.request { $0.request.body = ByteBuffer(string: "8") }.key)
        // The options of the call are not part of the key, nor are other headers.
        #expect(plain.key == self.request { $0.request.timeout = .seconds(3) }.key)
        #expect(plain.key == self.request { $0.request.metadata = ["trace": "1"] }.key)
        #expect(plain.key == self.request { $0.significantHeaders = ["language"] }.key)
        func key(_ metadata: [String: String], header: [String: [UInt8]] = [:]) -> ResponseKey {
            self.request {
                $0.request.metadata = metadata
                $0.request.header = header
                $0.significantHeaders = ["language", "tenant"]
            }.key
        }
        #expect(key(["language": "de", "trace": "1"]) == key(["language": "de", "trace": "2"]))
        #expect(key(["language": "de"]) != key(["language": "en"]))
        #expect(key(["language": "de"]) != key([:]))
        #expect(key(["language": ""]) != key([:]))
        #expect(key(["language": "de"]) != key(["tenant": "de"]))
        #expect(key(["language": "de"]) != key([:], header: ["language": Array("de".utf8)]))
        #expect(key(["language": "de", "tenant": "a"]) == key(["tenant": "a", "language": "de"]))
    }

    @Test func noTwoRequestsRunTogetherIntoOneKey() {
        // Equal bytes, divided differently.
        func key(_ metadata: [String: String], _ body: String) -> ResponseKey {
            ResponseKey(type: 101, body: ByteBuffer(string: body), metadata: metadata)
        }
        let keys = [
            key(["a": "bc"], "d"), key(["ab": "c"], "d"), key(["a": "b"], "cd"), key(["a": "b", "c": ""], "d"),
            key([:], "abcd"), key(["abcd": ""], ""), key(["": "abcd"], ""),
            // The encoding of a value's length, within a name.
            key(["a": "\0\0\0\0x"], ""), key(["a\0\0\0\u{5}": ""], "x"),
        ]
        #expect(Set(keys).count == keys.count)
    }

    @Test func aCanonicalBodyStandsForTheBody() {
        let one = self.request {
            $0.request.body = ByteBuffer(string: #"{"a":1,"b":2}"#)
            $0.canonicalBody = ByteBuffer(string: "a=1&b=2")
        }
        let other = self.request {
            $0.request.body = ByteBuffer(string: #"{"b":2,"a":1}"#)
            $0.canonicalBody = ByteBuffer(string: "a=1&b=2")
        }
        #expect(one.key == other.key)
    }

    @Test func aKeyIsReadBackFromItsBytes() {
        let key = ResponseKey(type: 0x1234_5678, body: ByteBuffer(string: "7"), metadata: ["language": "de"])
        #expect(ResponseKey(bytes: key.bytes) == key)
        #expect(ResponseKey(bytes: [0, 0, 0, 101, 0, 0, 0]) == nil)
    }

    @Test func keptAnswerDoesNotRetainItsRead() {
        let read = ByteBuffer(repeating: 7, count: 1 << 20)
        let response = SocketResponse(
            type: 101,
            body: read.getSlice(at: 100, length: 1_000) ?? ByteBuffer(),
            endpoint: Endpoint(host: "server", port: 1)
        )
        #expect(response.body.storageCapacity == 1 << 20)
        let kept = StoredResponse.detached(response)
        #expect(kept == response)
        #expect(kept.body.storageCapacity < 4_096)
        #expect(StoredResponse(kept, storedAt: Date()).cost(with: ResponseKey(type: 101, body: ByteBuffer())) < 4_096)
    }

    @Test(arguments: [Endpoint(host: "server", port: 7_000), Endpoint(unixPath: "/tmp/socket")])
    func anAnswerIsReadBackAsItWasWritten(_ endpoint: Endpoint) throws {
        let stored = StoredResponse(
            SocketResponse(
                type: 101,
                serial: 50,
                body: ByteBuffer(bytes: [0, 255, 10]),
                header: ["session": [1, 2]],
                metadata: ["revision": "a"],
                endpoint: endpoint
            ),
            storedAt: Date(timeIntervalSinceReferenceDate: 1_234.5),
            owners: ["a", "b"]
        )
        let data = try JSONEncoder().encode(stored)
        #expect(try JSONDecoder().decode(StoredResponse.self, from: data) == stored)
    }
}
