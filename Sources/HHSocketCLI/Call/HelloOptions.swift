// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketRPC
import NIOCore

/// The options of `call` that require hello.
struct HelloOptions: ParsableArguments {
    @Flag(
        name: .customLong("hello"),
        help: """
            Perform the hello handshake, and fail if the server does not support or refuses it. Implied by --token, \
            --header, --deadline, --idempotency-key and --compress, and by streams.
            """
    )
    var isOn = false

    @Option(parsing: .unconditional, help: TokenArgument.help, transform: TokenArgument.parse)
    var token: [UInt8]?

    @Option(
        parsing: .unconditionalSingleValue,
        help: MetadataArgument.help
    )
    var header: [MetadataArgument] = []

    @Option(
        duration: "The time after which the answer is useless, sent to the server. The call ends then, or at --timeout."
    )
    var deadline: Duration?

    @Option(
        parsing: .unconditional,
        help: .value(
            "key",
            """
            A unique name for the call, such as a UUID, with which the server runs it only once: repeats, including those \
            of --repeat and --retries, get the answer of the first.
            """
        )
    )
    var idempotencyKey: String?

    @Flag(help: "Compress the payload if that makes it smaller.")
    var compress = false

    /// Ten years: a longer deadline is a mistake.
    private static let longestDeadline = Duration.seconds(315_360_000)

    func validate() throws {
        if let deadline = self.deadline, deadline > Self.longestDeadline {
            throw ValidationError("--deadline is 3650d at most.")
        }
        if let key = self.idempotencyKey, !(1...Envelope.maximumKeyLength).contains(key.utf8.count) {
            throw ValidationError(
                "--idempotency-key has 1 to \(Envelope.maximumKeyLength) bytes, not \(key.utf8.count)."
            )
        }
        try MetadataArgument.validate(self.header)
    }

    /// Whether any of the options is given.
    var isAskedFor: Bool {
        self.isOn || self.token != nil || !self.header.isEmpty || self.deadline != nil || self.idempotencyKey != nil
            || self.compress
    }

    /// Refuses a format that cannot have a hello.
    ///
    /// - Parameter streams: Whether hello should agree on streams.
    func validate(in format: WireFormat, streams: Bool) throws {
        if self.isAskedFor || streams { try FormatArgument.requireHello(in: format) }
    }

    /// Configures a client for hello, if any option is given or streams are wanted. Call it once the client's timeout
    /// is set.
    func apply(to configuration: inout SocketClient.Configuration, streams: Bool) {
        guard self.isAskedFor || streams else { return }
        if streams { configuration.streams = StreamPolicy() }
        // Sooner than the call's own timeout, whose error would not name hello as the cause.
        let timeout = min(HelloPolicy().timeout, configuration.timeout / 2)
        configuration.hello = HelloPolicy(isRequired: true, timeout: timeout)
        if let token = self.token { configuration.hello?.sessionToken = { token } }
    }

    /// Configures a request, except its deadline, which differs for each call.
    func apply(to request: inout SocketRequest) {
        request.metadata = MetadataArgument.metadata(self.header)
        request.idempotencyKey = self.idempotencyKey
        if self.compress { request.compresses = true }
    }
}

/// `NAME:VALUE`
struct MetadataArgument: ExpressibleByArgument, Sendable {
    var name: String
    var value: String

    init?(argument: String) {
        guard let (name, value) = argument.nameAndValue else { return nil }
        self.name = name.lowercased()
        self.value = String(value.drop { $0 == " " })
    }

    static let help = ArgumentHelp(
        """
        Send this metadata. May be given several times. Names are sent in lower case, and values without leading \
        spaces.
        """,
        valueName: "name:value"
    )

    /// Refuses a name that is given more than once.
    static func validate(_ arguments: [Self]) throws {
        let names = arguments.map(\.name)
        if let name = names.first(where: { name in names.count { $0 == name } > 1 }) {
            throw ValidationError("--header \(name) is given more than once, but metadata has one value for each name.")
        }
    }

    /// Returns the metadata of arguments that ``validate(_:)`` has accepted.
    static func metadata(_ arguments: [Self]) -> [String: String] {
        Dictionary(uniqueKeysWithValues: arguments.map { ($0.name, $0.value) })
    }
}
