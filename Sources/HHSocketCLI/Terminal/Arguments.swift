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

/// A positive number of seconds, fractions allowed.
struct Seconds: ExpressibleByArgument, Sendable {
    var duration: Duration

    init(_ duration: Duration) {
        self.duration = duration
    }

    init?(argument: String) {
        // Up to 31 years: what is beyond is a slip, and what is far beyond could not be added to the clock.
        guard let seconds = Double(argument), seconds >= 0.001, seconds <= 1e9 else { return nil }
        self.duration = .seconds(seconds)
    }
}

/// A number of seconds, fractions allowed; 0 too.
struct SecondsOrZero: ExpressibleByArgument, Sendable {
    var duration: Duration

    init?(argument: String) {
        if let seconds = Double(argument), seconds == 0 {
            self.duration = .zero
        } else if let seconds = Seconds(argument: argument) {
            self.duration = seconds.duration
        } else {
            return nil
        }
    }
}

/// Where to listen: `HOST:PORT`, with an IPv6 address in brackets, or `unix:PATH`. Port 0 takes a free one.
struct ListenAddress: ExpressibleByArgument, Sendable {
    var listener: ServerListener

    init?(argument: String) {
        // An endpoint is where one can connect to, and so has no port 0.
        let takesFreePort = argument.hasSuffix(":0") && !argument.hasPrefix("unix:")
        guard let endpoint = Endpoint(takesFreePort ? argument.dropLast() + "1" : argument[...]) else { return nil }
        self.listener =
            endpoint.unixPath.map { ServerListener(unixPath: $0) }
            ?? ServerListener(host: endpoint.host, port: takesFreePort ? 0 : endpoint.port)
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
