import ArgumentParser
import HHSocket
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
