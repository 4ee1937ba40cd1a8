import ArgumentParser
import HHSocket
import HHSocketServer
import NIOCore

/// `HOST:PORT[,HOST:PORT…]`, or `unix:PATH`
struct ServerAddresses: ExpressibleByArgument, Sendable {
    var endpoints: [Endpoint]

    init?(argument: String) {
        let parts = argument.split(separator: ",", omittingEmptySubsequences: false)
        let endpoints = parts.compactMap { Endpoint($0) }
        guard endpoints.count == parts.count else { return nil }
        self.endpoints = endpoints
    }

    static let help = ArgumentHelp(
        "The servers, tried in this order; an IPv6 address in brackets, a Unix domain socket as unix:PATH.",
        valueName: "host:port,..."
    )
}

/// An address to listen on: `HOST:PORT`, with an IPv6 address in brackets, or `unix:PATH`. Port 0 picks a free one.
struct ListenAddress: ExpressibleByArgument, Sendable {
    var listener: ServerListener

    init?(argument: String) {
        // An endpoint is an address to connect to, so it cannot have port 0.
        let picksFreePort = argument.hasSuffix(":0") && !argument.hasPrefix("unix:")
        guard let endpoint = Endpoint(picksFreePort ? argument.dropLast() + "1" : argument[...]) else { return nil }
        self.listener =
            endpoint.unixPath.map { ServerListener(unixPath: $0) }
            ?? ServerListener(host: endpoint.host, port: picksFreePort ? 0 : endpoint.port)
    }
}

/// `TYPE:TEXT`
struct PushText: ExpressibleByArgument, Sendable {
    var type: UInt32
    var body: ByteBuffer

    init?(argument: String) {
        guard let colon = argument.firstIndex(of: ":"),
            let type = UInt32(argument[..<colon])
        else { return nil }
        self.type = type
        self.body = ByteBuffer(string: String(argument[argument.index(after: colon)...]))
    }
}
