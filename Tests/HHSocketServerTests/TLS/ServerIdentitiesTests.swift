// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import TestSupport
import Testing

@testable import HHSocketServer

/// The certificate that a client gets, and invalid configurations.
@Suite struct ServerIdentitiesTests {
    @Test func exactNamesComeBeforeWildcardsAndTheRestGetsTheDefault() throws {
        let certificates = try [.server, .serverDB, .serverNameOnly, .serverOtherName].map { try TestCertificate($0) }
        var tls = ServerTLS(identity: certificates[0].identity)
        tls.identitiesByHost = [
            "Chat.Example.com.": certificates[1].identity,
            "*.example.com": certificates[2].identity,
            "*.chat.example.com": certificates[3].identity,
        ]
        let identities = try ServerIdentities(tls)
        let pins = certificates.map(\.pin)
        for (host, index) in [
            (nil, 0), ("", 0), ("chat.example.com", 1), ("CHAT.example.COM", 1), ("chat.example.com.", 1),
            ("other.example.com", 2), ("a.b.example.com", 0), ("a.chat.example.com", 3), ("example.com", 0),
            (".example.com", 0), ("com", 0), (".", 0), ("..", 0), ("\u{0}.example.com\u{0}", 0),
        ] as [(String?, Int)] {
            let key = try identities.identity(for: host).chain[0].extractPublicKey().toSPKIBytes()
            let pin = Data(SHA256.hash(of: key)).base64EncodedString()
            #expect(pins.firstIndex(of: pin) == index, "\(host ?? "nil")")
        }
    }

    @Test(arguments: [
        "", ".", "*", "*.", "*.com", "a.*.example.com", "**.example.com", "a..example.com", "exa mple.com",
        "ex\u{e4}mple.com", "*a.example.com",
    ])
    func otherTextIsNoHost(host: String) throws {
        let identity = try TestCertificate(.server).identity
        var tls = ServerTLS(identity: identity)
        tls.identitiesByHost = [host: identity]
        let error = #expect(throws: SocketError.self) { try TLSService(tls) }
        #expect(error?.message.contains("\"\(host)\"") == true)
    }

    private func message(_ change: (inout ServerTLS) throws -> Void) throws -> String? {
        var tls = ServerTLS(identity: try TestCertificate(.server).identity)
        try change(&tls)
        return #expect(throws: SocketError.self) { try TLSService(tls) }?.message
    }

    @Test func invalidConfigurationsAreReportedWithoutTraps() throws {
        let server = try TestCertificate(.server)
        let other = try TestCertificate(.serverDB)
        let mixed = TLSIdentity(certificatePEM: server.certificatePEM, keyPEM: other.keyPEM)
        let wrong: [(word: String, change: (inout ServerTLS) throws -> Void)] = [
            ("private key", { $0.identity = mixed }),
            ("private key", { $0.identitiesByHost = ["a.example": mixed] }),
            (
                "for a.example: ",
                { $0.identitiesByHost = ["a.example": TLSIdentity(certificateFile: "/no", keyFile: "/no")] }
            ),
            (
                "two certificates",
                { $0.identitiesByHost = ["a.example": server.identity, "A.example.": server.identity] }
            ),
            ("application protocol", { $0.applicationProtocols = [""] }),
            ("application protocol", { $0.applicationProtocols = ["h\u{e4}"] }),
            ("application protocol", { $0.applicationProtocols = [String(repeating: "a", count: 256)] }),
            ("required", { $0.requiresApplicationProtocol = true }),
            ("cipher suite", { $0.cipherSuites = [] }),
            ("cipher suite", { $0.keyExchangeGroups = [] }),
            ("clientCertificates", { $0.revocationLists = [.pem(try testRevocationList())] }),
        ]
        for (word, change) in wrong {
            let message = try self.message(change)
            #expect(message?.contains(word) == true, "\(message ?? "nothing") should tell of \(word)")
        }
    }

    @Test func everySuiteAndGroupIsOneOfTheLibrary() throws {
        var tls = ServerTLS(identity: try TestCertificate(.server).identity)
        let suites: [TLSCipherSuite] = [
            .ecdheECDSAWithAES128GCM, .ecdheECDSAWithAES256GCM, .ecdheECDSAWithChaCha20Poly1305, .ecdheRSAWithAES128GCM,
            .ecdheRSAWithAES256GCM, .ecdheRSAWithChaCha20Poly1305,
        ]
        let groups: [TLSKeyExchangeGroup] = [.x25519MLKEM768, .x25519, .secp256r1, .secp384r1, .secp521r1]
        for suite in suites {
            tls.cipherSuites = [suite]
            _ = try TLSService(tls)
        }
        for group in groups {
            tls.keyExchangeGroups = [group]
            _ = try TLSService(tls)
        }
        // The library rejects duplicates.
        tls.cipherSuites = suites + suites
        tls.keyExchangeGroups = groups + groups
        _ = try TLSService(tls)
    }
}
