// SPDX-License-Identifier: Apache-2.0
import HHSocket
import TestSupport
import Testing

@Suite struct TLSIdentityTests {
    @Test func privateKeyIsNeverShown() {
        let identity = TLSIdentity(certificatePEM: "certificate", keyPEM: "secret")
        var configuration = ClientTLS()
        configuration.identity = identity
        var dumped = ""
        dump(configuration, to: &dumped)
        for text in ["\(identity)", String(reflecting: identity), "\(configuration)", dumped] {
            #expect(!text.contains("secret"), "\(text)")
        }
        let files = TLSIdentity(certificateFile: "a.pem", keyFile: "b.key")
        #expect("\(files)" == "certificate in a.pem, key in b.key")
    }

    @Test func anEncryptedKeyIsSaidToBeEncrypted() throws {
        let certificate = try TestCertificate(.server)
        for key in try testEncryptedKeys() {
            let identity = TLSIdentity(certificatePEM: certificate.certificatePEM, keyPEM: key)
            let error = #expect(throws: SocketError.self) { try identity.load() }
            #expect(error?.code == .invalidArgument)
            #expect(
                error?.message.hasPrefix("the private key in the given text is encrypted") == true,
                "\(String(describing: error))"
            )
        }
        let folder = try TemporaryFolder()
        let files = TLSIdentity(
            certificateFile: try folder.write(certificate.certificatePEM, to: "certificate.pem"),
            keyFile: try folder.write(try testEncryptedKeys()[0], to: "key.pem")
        )
        let error = #expect(throws: SocketError.self) { try files.load() }
        #expect(error?.message.contains("key.pem is encrypted") == true)
    }
}
