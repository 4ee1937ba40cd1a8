// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketServer
import TestSupport
import Testing

/// The examples of `Security.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct SecurityGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage(guide: "Security").shortcomings() == [])
    }

    @Test func systemsAuthoritiesAreTheDefault() {
        var configuration = SocketClient.Configuration(servers: [])
        #expect(configuration.socket.tls == nil)
        configuration.socket.tls = ClientTLS()

        #expect(configuration.socket.tls?.minimumVersion == .tls12)
        #expect(configuration.socket.tls?.insecurelySkipsVerification == false)
        #expect(configuration.socket.tls?.pins == [])
    }

    @Test func pinsAreReadAsTheyArePrinted() throws {
        var configuration = SocketClient.Configuration(servers: [])
        var tls = ClientTLS()
        tls.pins = [
            // The key in use.
            try PublicKeyPin(base64: "sha256/hZcpfTHpJcpk1ltj9W3Mrb4RBIfe92W0tgDxjp15j/Q="),
            // A second one, kept offline.
            try PublicKeyPin(base64: "sha256/lf+f5FUbsiwuC8/g7iG+016Qh2Sc8muA+kPCh6OqDIU="),
        ]
        configuration.socket.tls = tls

        let pins = try #require(configuration.socket.tls?.pins)
        #expect(pins.map(\.description).contains("sha256/hZcpfTHpJcpk1ltj9W3Mrb4RBIfe92W0tgDxjp15j/Q="))
        // The page must not contain the pin of an empty key.
        #expect(try !pins.contains(PublicKeyPin(base64: "sha256/47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")))
    }

    /// The example listens on a port that may be taken, and reads files of the current folder: so it is only compiled,
    /// and ``TLSTests`` runs a server like it.
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
