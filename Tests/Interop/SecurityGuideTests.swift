import Foundation
import HHSocket
import HHSocketRPC
import HHSocketServer
import TestSupport
import Testing

/// The examples of `Docs/Security.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SecurityGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        let source = try String(contentsOfFile: #filePath, encoding: .utf8)
        #expect(try DocumentationPage("Docs/Security.md").examples(missingFrom: source) == [])
    }

    @Test func systemsAuthoritiesAreTheDefault() {
        var configuration = SocketConfiguration(servers: [])
        #expect(configuration.tls == nil)
        configuration.tls = ClientTLS()

        #expect(configuration.tls?.minimumVersion == .tls12)
        #expect(configuration.tls?.insecurelySkipsVerification == false)
        #expect(configuration.tls?.pins == [])
    }

    @Test func pinsAreReadAsTheyArePrinted() throws {
        var tls = ClientTLS()
        tls.pins = [
            // The key in use.
            try PublicKeyPin(base64: "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="),
            // A second one, kept offline.
            try PublicKeyPin(base64: "sha256/ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs="),
        ]

        #expect(tls.pins.map(\.description).sorted()[0] == "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")
    }

    /// The example listens on a port that may be taken, and reads files of the current folder: so it is compiled, and a
    /// server like it is run by ``TLSTests``.
    private func server(_ router: Router) throws -> SocketServer {
        var tls = ServerTLS(identity: TLSIdentity(certificateFile: "server.pem", keyFile: "server.key"))
        tls.clientCertificates = .required(.file("clients-ca.pem"))
        let server = SocketServer(configuration: .init(port: 7000, tls: tls), router: router)
        return server
    }

    @Test func serverNamesTheFileThatIsMissing() async throws {
        let server = try self.server(Router())
        let error = await #expect(throws: SocketError.self) { try await server.start() }
        #expect(error?.code == .invalidArgument)
        #expect(error?.message.contains("server.pem") == true)
    }
}
