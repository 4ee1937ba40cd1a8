import Foundation
import HHSocketOperations
import HHSocketServer

/// The settings, which are environment variables, as systemd and containers give them.
struct Settings {
    /// The address of the server, `NOTICES_HOST` and `NOTICES_PORT`.
    var host = "127.0.0.1"
    var port = 7000
    /// The address of metrics and probes, `NOTICES_MONITORING_HOST` and `NOTICES_MONITORING_PORT`.
    var monitoringHost = "127.0.0.1"
    var monitoringPort = 9464
    /// The users by their tokens: lines of the file `NOTICES_TOKENS`, each a token and a name.
    var users: [String: String] = [:]
    /// The certificate and its key, `NOTICES_CERTIFICATE` and `NOTICES_KEY`; without them there is no TLS.
    var tls: ServerTLS?
    /// The balancers that send PROXY headers, `NOTICES_BALANCERS`: addresses or networks with commas in between.
    var balancers: [IPNetwork] = []
    /// `NOTICES_LOG`: `debug`, `info`, `warning` and so on.
    var logLevel = Logger.Level.info

    struct Invalid: Error, CustomStringConvertible {
        var description: String
    }

    init(_ environment: [String: String]) throws {
        self.host = environment["NOTICES_HOST"] ?? self.host
        self.monitoringHost = environment["NOTICES_MONITORING_HOST"] ?? self.monitoringHost
        self.port = try Self.port("NOTICES_PORT", environment) ?? self.port
        self.monitoringPort = try Self.port("NOTICES_MONITORING_PORT", environment) ?? self.monitoringPort
        guard let tokens = environment["NOTICES_TOKENS"] else {
            throw Invalid(description: "NOTICES_TOKENS names no file with a token and a name on each line")
        }
        for line in try String(contentsOfFile: tokens, encoding: .utf8).split(separator: "\n") {
            let words = line.split(separator: " ", maxSplits: 1)
            guard words.count == 2 else { throw Invalid(description: "\(tokens): a line has no token and name") }
            self.users[String(words[0])] = String(words[1])
        }
        if let certificate = environment["NOTICES_CERTIFICATE"] {
            let key = environment["NOTICES_KEY"] ?? certificate
            self.tls = ServerTLS(identity: TLSIdentity(certificateFile: certificate, keyFile: key))
            // A certificate that was renewed is read without a restart.
            self.tls?.fileCheckInterval = .seconds(60)
        }
        self.balancers = try (environment["NOTICES_BALANCERS"] ?? "").split(separator: ",").map {
            try IPNetwork(String($0))
        }
        if let name = environment["NOTICES_LOG"] {
            guard let level = Logger.Level(rawValue: name) else { throw Invalid(description: "NOTICES_LOG: \(name)") }
            self.logLevel = level
        }
    }

    private static func port(_ name: String, _ environment: [String: String]) throws -> Int? {
        guard let text = environment[name] else { return nil }
        guard let port = Int(text), (0...65_535).contains(port) else {
            throw Invalid(description: "\(name) is a port, not \(text)")
        }
        return port
    }

    /// The configuration of the server.
    func configuration(_ logger: Logger, _ metrics: PrometheusMetrics) -> SocketServer.Configuration {
        var listener = ServerListener(host: self.host, port: self.port, tls: self.tls)
        listener.proxies.proxyProtocol = self.balancers
        // Sockets of systemd, if the service was started for one.
        let inherited = ServerListener.inherited().map { socket in
            var listener = listener
            listener.descriptor = socket.descriptor
            return listener
        }
        var configuration = SocketServer.Configuration(listeners: inherited.isEmpty ? [listener] : inherited)
        configuration.logger = logger
        configuration.metricsFactory = metrics
        configuration.shutdown.gracePeriod = .seconds(20)
        configuration.limits.requestRatePerIdentity = RequestRate(perSecond: 50, burst: 200)
        // Clients authenticate with the token of their hello.
        configuration.hello.isRequired = true
        configuration.hello.authenticate = { [users] token, _ in
            guard let user = users[String(decoding: token, as: UTF8.self)] else { throw StatusError(.noPermission) }
            return user
        }
        return configuration
    }
}
