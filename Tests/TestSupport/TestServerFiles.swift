// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// A server's certificate and key, and its authority's certificate, as files in PEM that a test may overwrite.
package struct TestServerFiles: Sendable {
    package let folder: TemporaryFolder
    package let authority: TestAuthority
    package let ca: String
    package let certificate: String
    package let key: String
    /// The pin of the server's key, in base64.
    package let pin: String

    package init() throws {
        self.folder = try TemporaryFolder()
        self.authority = try TestAuthority()
        let server = try TestCertificate(.server)
        self.ca = try self.folder.write(self.authority.pem, to: "ca.pem")
        self.certificate = try self.folder.write(server.certificatePEM, to: "server.pem")
        self.key = try self.folder.write(server.keyPEM, to: "server.key")
        self.pin = server.pin
    }
}
