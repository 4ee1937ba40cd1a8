// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// Servers behind third-party balancers, if they are installed, one of which is killed.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LoadBalancerTests {
    /// A balancer's configuration from `Operations.md`, with other addresses and faster checks.
    private struct OperationsPageConfiguration {
        private var text: String

        /// - Parameter change: A part of the page's text, and its replacement.
        init(_ language: String, ports: [Int], change: (old: String, new: String)? = nil) throws {
            let page = try DocumentationPage(guide: "Operations", section: "Load balancers")
            var text = try #require(page.blocks(language).first)
            let changes = [
                ("10.0.0.1:7000", "127.0.0.1:\(ports[0])"), ("10.0.0.2:7000", "127.0.0.1:\(ports[1])"),
                ("inter 1s", "inter 100ms"),
            ]
            for (old, new) in changes where language == "haproxy" || !old.hasPrefix("inter") {
                try #require(text.contains(old), "the configuration for \(language) is another one: it lacks \(old)")
                text = text.replacingOccurrences(of: old, with: new)
            }
            if let (old, new) = change {
                try #require(text.contains(old))
                text = text.replacingOccurrences(of: old, with: new)
            }
            try #require(text.contains("0.0.0.0:7000"))
            self.text = text
        }

        func text(listeningOn port: Int) -> String {
            self.text.replacingOccurrences(of: "0.0.0.0:7000", with: "127.0.0.1:\(port)") + "\n"
        }
    }

    /// This test requires no balancer.
    @Test(arguments: ["haproxy", "nginx"])
    func thePageHasAConfiguration(language: String) throws {
        let text = try OperationsPageConfiguration(language, ports: [1, 2]).text(listeningOn: 3)
        for address in ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"] { #expect(text.contains(address)) }
    }

    // MARK: HAProxy

    @Suite(
        .tags(.io),
        .enabled(
            if: RealProxy.haproxy != nil,
            "There is no haproxy: servers behind it are NOT TESTED here. Install the package haproxy."
        )
    )
    struct HAProxy {
        private func balance(_ ports: [Int], _ body: (Int) async throws -> Void) async throws {
            try await self.balance(ports, nil, body)
        }

        private func balance(
            _ ports: [Int],
            _ change: (old: String, new: String)?,
            _ body: (Int) async throws -> Void
        ) async throws {
            let configuration = try OperationsPageConfiguration("haproxy", ports: ports, change: change)
            try await RealProxy.with(RealProxy.haproxy, arguments: { ["-db", "-f", $0] }, body) { port, _ in
                configuration.text(listeningOn: port)
            }
        }

        @Test func oneServerIsKilled() async throws { try await BalancedServers.killOne(.tcp, self.balance) }
        @Test func oneServerDrains() async throws { try await BalancedServers.drainOne(.tcp, self.balance) }

        @Test(arguments: ["send-proxy", "send-proxy-v2"], [false, true])
        func serversKnowTheClients(option: String, isSecure: Bool) async throws {
            let change = ("default-server check", "default-server \(option) check")
            try await ProxiedClients.arriveWithHeaders(isSecure: isSecure) { ports, body in
                try await self.balance(ports, change, body)
            }
        }
    }

    // MARK: nginx

    @Suite(
        .tags(.io),
        .enabled(
            if: RealProxy.nginx != nil && NginxStreams.areThere,
            "There is no nginx with streams: servers behind it are NOT TESTED here. Install libnginx-mod-stream."
        )
    )
    struct Nginx {
        private func balance(_ ports: [Int], _ body: (Int) async throws -> Void) async throws {
            try await self.balance(ports, nil, body)
        }

        private func balance(
            _ ports: [Int],
            _ change: (old: String, new: String)?,
            _ body: (Int) async throws -> Void
        ) async throws {
            let configuration = try OperationsPageConfiguration("nginx", ports: ports, change: change)
            let module = NginxStreams.module
            try await RealProxy.with(RealProxy.nginx, arguments: { ["-g", "daemon off;", "-c", $0] }, body) { port, _ in
                """
                \(FileManager.default.fileExists(atPath: module) ? "load_module \(module);" : "")
                pid /tmp/hhsocket-nginx-\(port).pid;
                error_log stderr crit;
                worker_processes 1;
                \(configuration.text(listeningOn: port))

                """
            }
        }

        @Test func oneServerIsKilled() async throws { try await BalancedServers.killOne(.tcp, self.balance) }
        @Test func oneServerDrains() async throws { try await BalancedServers.drainOne(.tcp, self.balance) }

        @Test(arguments: [false, true])
        func serversKnowTheClients(isSecure: Bool) async throws {
            let change = ("proxy_half_close on;", "proxy_half_close on; proxy_protocol on;")
            try await ProxiedClients.arriveWithHeaders(isSecure: isSecure) { ports, body in
                try await self.balance(ports, change, body)
            }
        }
    }
}

/// The module of nginx that balances TCP, which Debian packages separately.
private enum NginxStreams {
    static let module = "/usr/lib/nginx/modules/ngx_stream_module.so"
    static let areThere =
        FileManager.default.fileExists(atPath: Self.module)
        || !FileManager.default.fileExists(atPath: "/etc/debian_version")
}
