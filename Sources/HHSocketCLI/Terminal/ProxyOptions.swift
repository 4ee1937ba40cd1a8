// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket

/// `--proxy`: the proxy through which a server is reached.
struct ProxyOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Connect through this proxy: http://user:password@host:port, or socks5://…; the user and "
                + "password are optional.",
            valueName: "url"
        ),
        transform: Self.parse
    )
    var proxy: Proxy?

    private static func parse(_ url: String) throws -> Proxy {
        do throws(SocketError) {
            return try Proxy(url: url)
        } catch {
            throw ValidationError(error.message)
        }
    }
}
