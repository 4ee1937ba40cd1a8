// SPDX-License-Identifier: Apache-2.0
import HHSocket
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
}
