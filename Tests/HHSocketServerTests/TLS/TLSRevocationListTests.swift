// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import TestSupport
import Testing

@testable import HHSocketServer

/// Lists of revoked certificates, made by OpenSSL and by the tests.
@Suite struct TLSRevocationListTests {
    private static func certificate(_ name: TestCertificate.Name) throws -> [UInt8] {
        Array(try #require(Data(base64Encoded: try TestCertificate(name).certificateBase64)))
    }

    private static let now = Int64(1_800_000_000)

    // MARK: Lists of OpenSSL

    @Test func revokedCertificateAndThatOfAnotherIssuerAreRefused() throws {
        let lists = try #require(try CertificateRevocations([.pem(try testRevocationList())]))
        #expect(!lists.refuses(try Self.certificate(.clientOfRevoking), now: Self.now))
        #expect(lists.refuses(try Self.certificate(.clientRevoked), now: Self.now))
        // There is no list of its issuer.
        #expect(lists.refuses(try Self.certificate(.client), now: Self.now))
        // A hundred years later the list is too old.
        #expect(lists.refuses(try Self.certificate(.clientOfRevoking), now: Self.now + 110 * 365 * 86_400))
        #expect(lists.refuses([], now: Self.now))
        #expect(lists.refuses([1, 2, 3], now: Self.now))
        #expect(try CertificateRevocations([]) == nil)
    }

    @Test func listsComeInPEMAndDERAndFromFiles() throws {
        let pem = try testRevocationList()
        let base64 = pem.split(separator: "\n").filter { !$0.hasPrefix("-----") }.joined()
        let der = Array(try #require(Data(base64Encoded: base64)))
        let folder = try TemporaryFolder()
        let file = try folder.write("text before it\n\(pem)\(Self.list().pem)", to: "lists.pem")
        for list in [TLSRevocationList.der(der), .file(file)] {
            let lists = try #require(try CertificateRevocations([list]))
            #expect(lists.refuses(try Self.certificate(.clientRevoked), now: Self.now))
            #expect(!lists.refuses(try Self.certificate(.clientOfRevoking), now: Self.now))
        }
        #expect(try TLSRevocationList.file(file).load().count == 2)
    }

    @Test(arguments: [
        (TLSRevocationList.pem("nothing"), "no list"),
        (.pem(""), "no list"),
        (.der([]), "no list"),
        (.file("/nowhere.crl"), "/nowhere.crl"),
        (.pem("-----BEGIN X509 CRL-----\n!\n-----END X509 CRL-----\n"), "cannot be used"),
        (.der([0x30, 0x82, 0x01]), "cannot be used"),
    ])
    func invalidListIsReported(list: TLSRevocationList, word: String) {
        let error = #expect(throws: SocketError.self) { try CertificateRevocations([list]) }
        #expect(error?.code == .invalidArgument)
        #expect(error?.message.contains(word) == true, "\(error?.message ?? "")")
    }

    // MARK: Lists of our own

    private struct Made {
        var der: [UInt8]
        var pem: String {
            "-----BEGIN X509 CRL-----\n\(Data(self.der).base64EncodedString())\n-----END X509 CRL-----\n"
        }
    }

    private static func value(_ tag: UInt8, _ parts: [UInt8]...) -> [UInt8] {
        let content = parts.flatMap { $0 }
        precondition(content.count < 65_536)
        let length: [UInt8] =
            content.count < 128
            ? [UInt8(content.count)] : [0x82, UInt8(content.count >> 8), UInt8(content.count & 0xFF)]
        return [tag] + length + content
    }

    private static let issuer = value(0x30, value(0x31, value(0x30, value(0x06, [0x55, 4, 3]), value(0x0C, [65]))))
    private static let algorithm = value(0x30, value(0x06, [0x2A]))

    private static func time(_ text: String) -> [UInt8] {
        self.value(text.utf8.count == 13 ? 0x17 : 0x18, Array(text.utf8))
    }

    private static func list(
        next: [UInt8] = time("20991231235959Z"),
        entries: [UInt8] = [],
        extensions: [UInt8] = []
    ) -> Made {
        let content = self.value(
            0x30,
            self.value(0x02, [1]),
            self.algorithm,
            self.issuer,
            self.time("200101000000Z"),
            next,
            entries,
            extensions
        )
        return Made(der: self.value(0x30, content, self.algorithm, self.value(0x03, [0, 1])))
    }

    private static func certificate(_ number: [UInt8]) -> [UInt8] {
        let content = self.value(
            0x30,
            self.value(0xA0, self.value(0x02, [2])),
            self.value(0x02, number),
            self.algorithm,
            self.issuer,
            self.value(0x30)
        )
        return self.value(0x30, content, self.algorithm, self.value(0x03, [0, 1]))
    }

    private static func entry(_ number: [UInt8], _ extensions: [UInt8] = []) -> [UInt8] {
        self.value(0x30, self.value(0x02, number), self.time("250101000000Z"), extensions)
    }

    private static func anExtension(isCritical: Bool?) -> [UInt8] {
        let flag = isCritical.map { self.value(0x01, [$0 ? 0xFF : 0]) } ?? []
        return self.value(0x30, self.value(0x30, self.value(0x06, [0x55, 29, 20]), flag, self.value(0x04, [1])))
    }

    @Test func everyEntryIsRead() throws {
        let numbers: [[UInt8]] = [[1], [0, 0x80], Array(repeating: 7, count: 20)] + (2...200).map { [2, $0] }
        let entries = Self.value(0x30, numbers.flatMap { Self.entry($0, Self.anExtension(isCritical: false)) })
        let list = Self.list(
            entries: entries,
            extensions: Self.value(0xA0, Self.anExtension(isCritical: nil))
        )
        let lists = try #require(try CertificateRevocations([.der(list.der)]))
        for number in numbers { #expect(lists.refuses(Self.certificate(number), now: Self.now)) }
        #expect(!lists.refuses(Self.certificate([3]), now: Self.now))
    }

    @Test func listsOfOneIssuerAreAddedUpAndTheNewestHasTheTime() throws {
        let old = Self.list(next: Self.time("250101000000Z"), entries: Self.value(0x30, Self.entry([1])))
        let new = Self.list(next: Self.time("300101000000Z"), entries: Self.value(0x30, Self.entry([2])))
        for order in [[old, new], [new, old]] {
            let lists = try #require(try CertificateRevocations(order.map { .der($0.der) }))
            #expect([1, 2, 3].map { lists.refuses(Self.certificate([$0]), now: Self.now) } == [true, true, false])
            // 2030-01-01 00:00:00.
            #expect(!lists.refuses(Self.certificate([3]), now: 1_893_456_000))
            #expect(lists.refuses(Self.certificate([3]), now: 1_893_456_001))
        }
        let alone = try #require(try CertificateRevocations([.der(old.der)]))
        #expect(alone.refuses(Self.certificate([3]), now: Self.now))
        let endless = try #require(try CertificateRevocations([.der(Self.list(next: []).der)]))
        #expect(!endless.refuses(Self.certificate([3]), now: .max))
    }

    @Test func listsThatMustBeUnderstoodAreRejected() {
        for list in [
            Self.list(extensions: Self.value(0xA0, Self.anExtension(isCritical: true))),
            Self.list(entries: Self.value(0x30, Self.entry([1], Self.anExtension(isCritical: true)))),
        ] {
            let error = #expect(throws: SocketError.self) { try CertificateRevocations([.der(list.der)]) }
            #expect(error?.message.contains("critical") == true)
        }
    }

    @Test(
        arguments: [
            ("700101000000Z", 0), ("19700101000000Z", 0), ("20000229120000Z", 951_825_600),
            ("491231235959Z", 2_524_607_999),
            ("500101000000Z", -631_152_000), ("21000301000000Z", 4_107_542_400),
        ] as [(String, Int64)]
    )
    func datesAreRead(text: String, seconds: Int64) throws {
        var der = DER(Self.time(text)[...])
        #expect(try der.readTime("a date") == seconds)
    }

    @Test(arguments: ["", "Z", "7001010000Z", "700101000000", "70010100000xZ", "701301000000Z", "197001010000Z"])
    func otherTextIsNoDate(text: String) {
        for tag: UInt8 in [0x17, 0x18] {
            var der = DER(Self.value(tag, Array(text.utf8))[...])
            if (try? der.readTime("a date")) != nil { Issue.record("\(text) is read") }
        }
    }

    @Test func nothingThatStandsInAFileTraps() {
        var random = SeededGenerator(seed: 3)
        let whole = Self.list(entries: Self.value(0x30, Self.entry([1]) + Self.entry([2]))).der
        for _ in 0..<scaled(20_000) {
            var bytes = whole
            for _ in 0..<Int.random(in: 1...5, using: &random) {
                bytes[Int.random(in: bytes.indices, using: &random)] = UInt8.random(in: 0...255, using: &random)
            }
            _ = try? RevocationList(Array(bytes.prefix(Int.random(in: 0...bytes.count, using: &random))))
        }
    }
}
