import ArgumentParser
import HHSocket
import HHSocketHello
import HHSocketRPC
import NIOCore

/// What `call` tells the server beside the payload, which takes a hello.
struct HelloOptions: ParsableArguments {
    @Flag(
        name: .customLong("hello"),
        help: "Say hello; a server that refuses it, or does not know it, is an error. The options below do so too."
    )
    var isOn = false

    @Option(
        parsing: .unconditionalSingleValue,
        help: ArgumentHelp(
            """
            Send this metadata; may be given several times. Names are sent in lower case, and spaces that a value begins \
            with are not.
            """,
            valueName: "name:value"
        )
    )
    var header: [MetadataArgument] = []

    @Option(
        help: ArgumentHelp(
            "Tell the server that the answer is of no use after so many milliseconds. The call ends then, or at --timeout.",
            valueName: "ms"
        )
    )
    var deadline: Int?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            """
            Name the call, such as by a UUID, so that the server runs it once: a repeat of it, by --repeat and --retries \
            too, is answered as the first was.
            """,
            valueName: "key"
        )
    )
    var idempotencyKey: String?

    @Flag(help: "Compress the payload, if that makes it smaller.")
    var compress = false

    /// Ten years: what is beyond is a slip.
    private static let longestDeadline = 315_360_000_000

    func validate() throws {
        if let deadline = self.deadline, !(1...Self.longestDeadline).contains(deadline) {
            throw ValidationError("--deadline is 1 to \(Self.longestDeadline) milliseconds, not \(deadline).")
        }
        if let key = self.idempotencyKey, !(1...Envelope.maximumKeyLength).contains(key.utf8.count) {
            throw ValidationError(
                "--idempotency-key has 1 to \(Envelope.maximumKeyLength) bytes, not \(key.utf8.count)."
            )
        }
        let names = self.header.map(\.name)
        if let name = names.first(where: { name in names.count { $0 == name } > 1 }) {
            throw ValidationError("--header \(name) is there more than once, and metadata has one value for each name.")
        }
    }

    /// Whether any of them is given.
    var isAskedFor: Bool {
        self.isOn || !self.header.isEmpty || self.deadline != nil || self.idempotencyKey != nil || self.compress
    }

    /// Refuses a format that has no room for it.
    func validate(in format: WireFormat) throws {
        guard !self.isAskedFor || format.supportsHello else {
            throw ValidationError("The format \(format) cannot have hello: \(WireFormat.helloNeeds).")
        }
    }

    /// Has a client say hello, if that is asked for. To be used once its timeout is what it will be.
    func apply(to configuration: inout SocketClient.Configuration) {
        guard self.isAskedFor else { return }
        // Sooner than the call's own end, which would not tell that it was hello that was not answered.
        let timeout = min(HelloPolicy().timeout, configuration.timeout / 2)
        configuration.hello = HelloPolicy(isRequired: true, timeout: timeout)
    }

    /// All but the deadline, which is each call's own.
    func apply(to request: inout SocketRequest) {
        request.metadata = Dictionary(uniqueKeysWithValues: self.header.map { ($0.name, $0.value) })
        request.idempotencyKey = self.idempotencyKey
        if self.compress { request.compresses = true }
    }
}

/// `NAME:VALUE`
struct MetadataArgument: ExpressibleByArgument, Sendable {
    var name: String
    var value: String

    init?(argument: String) {
        guard let colon = argument.firstIndex(of: ":"), colon != argument.startIndex else { return nil }
        self.name = argument[..<colon].lowercased()
        self.value = String(argument[argument.index(after: colon)...].drop { $0 == " " })
    }
}
