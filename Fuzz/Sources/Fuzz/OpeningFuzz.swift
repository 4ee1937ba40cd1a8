// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import InstrumentedHHSocketLink

/// The opening handshake of WebSocket, both sides, and its URLs.
enum OpeningFuzz {
    private static let maximumHead = 16 << 10
    private static let maximumBody = 8 << 10

    static func run(_ bytes: [UInt8]) {
        var input = Input(bytes)
        switch input.byte() % 5 {
        case 0: self.request(&input)
        case 1: self.response(&input)
        case 2: self.bothSides(&input)
        case 3: self.urls(&input)
        default: self.dates(&input)
        }
    }

    // MARK: At a server

    /// Any bytes as a request.
    private static func request(_ input: inout Input) {
        let rules = input.rules()
        let pieces = input.pieceSizes()
        let stream = input.rest
        let whole = ServerOutcome(stream, pieces: [])
        for sizes in [pieces, [1]] {
            let outcome = ServerOutcome(stream, pieces: sizes)
            require(outcome == whole, "in pieces of \(sizes): \(outcome)\nwhole: \(whole)")
            // A head over the limit is rejected without waiting for its end.
            if sizes == [1] { require(outcome.needed <= Self.maximumHead, "\(outcome.needed) bytes of a head") }
        }
        if let rejection = whole.rejection { self.check(rejection) }
        guard let head = whole.head else { return }
        self.check(head)
        switch rules.decide(head) {
        case .reject(let rejection): self.check(rejection)
        case .upgrade(let agreement, let response): self.check(response, agreement, head, rules)
        }
    }

    private static func check(_ head: OpeningRequestHead) {
        require(head.method == "GET" && head.path.hasPrefix("/") && !head.host.isEmpty, "\(head)")
        require((0...65_535).contains(head.port ?? 0), "\(head) has port \(head.port ?? 0)")
        require("\(head)".utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F }, "\(head) is not a line")
        for field in head.headers.all {
            require(HTTPSyntax.isToken(field.name.utf8), "the field \(field)")
            require(field.value.utf8.allSatisfy(HTTPSyntax.isValueByte), "the value of \(field)")
        }
    }

    /// Checks that our client understands the answer.
    private static func check(_ rejection: OpeningRejection) {
        let bytes = Array(rejection.encode().readableBytesView)
        let outcome = ClientOutcome(bytes[...], to: self.plain, now: 0, pieces: [], closes: false)
        switch outcome.result {
        case .refused(let refusal):
            require(refusal.status == rejection.status, "\(rejection) became \(refusal)")
            let text = rejection.description + "\n"
            require(String(buffer: refusal.body) == String(text.prefix(Self.maximumBody)), "\(rejection): \(refusal)")
        case .redirect(let status, _):
            require(status == rejection.status, "\(rejection) became a redirect")
        default:
            require(outcome.error?.isInvalidArgument == false, "\(rejection) became \(outcome)")
        }
    }

    /// Checks that the response is within the client's offers (RFC 6455, section 4.2.2, and RFC 7692, section 7.1).
    private static func check(
        _ response: ByteBuffer,
        _ agreement: OpeningAgreement,
        _ head: OpeningRequestHead,
        _ rules: OpeningRules
    ) {
        guard let key = head.key, let response = try? HTTPHead(response),
            let offers = try? head.deflateOffers(),
            let answers = try? WebSocketExtension.read(response.fields.values("Sec-WebSocket-Extensions"))
        else { fatalError("\(head) was answered \(response)") }
        require(response.fields.occurrence(of: "Sec-WebSocket-Accept") == .once(key.accept), "a wrong accept")
        let subprotocol = response.fields.first("Sec-WebSocket-Protocol")
        require(subprotocol == agreement.subprotocol, "the subprotocol \(subprotocol ?? "") was answered")
        if let subprotocol {
            require(head.subprotocols.contains(subprotocol), "the subprotocol \(subprotocol) was not offered")
            require(rules.subprotocols.contains(subprotocol), "the subprotocol \(subprotocol) is unknown")
        }
        require(answers.count == (agreement.deflate == nil ? 0 : 1), "\(answers) for \(agreement)")
        guard let agreed = agreement.deflate, let answer = try? DeflateParameters(answers[0].parameters) else { return }
        require(rules.deflate != nil, "compression without a policy")
        require(agreed.direction(from: .server).canDeflate, "a window with which zlib cannot deflate: \(agreed)")
        require((8...15).contains(agreed.clientWindowBits), "\(agreed)")
        let isWithinAnOffer = offers.contains { offer in
            (answer.serverNoContextTakeover || !offer.serverNoContextTakeover)
                && (answer.serverWindowBits ?? 15) <= (offer.serverWindowBits ?? 15)
                && (offer.limitsClientWindow || !answer.limitsClientWindow)
                && (answer.clientWindowBits ?? 15) <= (offer.clientWindowBits ?? 15)
        }
        require(isWithinAnOffer, "\(answer) for \(offers)")
    }

    // MARK: At a client

    private static let plain: OpeningRequest = {
        guard let key = OpeningKey(text: "dGhlIHNhbXBsZSBub25jZQ=="), let target = try? WebSocketTarget("ws://a/b/c?d"),
            let request = try? OpeningRequest(target: target, key: key)
        else { fatalError("no request") }
        return request
    }()

    /// Any bytes as a response.
    private static func response(_ input: inout Input) {
        let policy = input.bool() ? input.policy() : nil
        let names = input.subprotocols()
        let now = input.now()
        let closes = input.bool()
        let pieces = input.pieceSizes()
        guard
            let request = try? OpeningRequest(
                target: self.plain.target,
                key: self.plain.key,
                subprotocols: names,
                deflate: policy
            )
        else { return }
        let stream = input.rest
        let whole = ClientOutcome(stream, to: request, now: now, pieces: [], closes: closes)
        for sizes in [pieces, [1]] {
            let outcome = ClientOutcome(stream, to: request, now: now, pieces: sizes, closes: closes)
            require(outcome == whole, "in pieces of \(sizes): \(outcome)\nwhole: \(whole)")
        }
        if let error = whole.error {
            let text = "\(error)"
            require(!error.isInvalidArgument && !text.isEmpty, "\(error)")
            require(text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F }, "\(text) is not a line")
        }
        if let result = whole.result { self.check(result, request) }
    }

    private static func check(_ result: OpeningResult, _ request: OpeningRequest) {
        switch result {
        case .accepted(let agreement, _):
            require(agreement.subprotocol.map(request.subprotocols.contains) ?? true, "\(agreement)")
            guard let deflate = agreement.deflate else { return }
            guard let policy = request.deflate else { fatalError("\(deflate) without an offer") }
            require(deflate.serverNoContextTakeover || !policy.serverNoContextTakeover, "\(deflate), \(policy)")
            require(deflate.clientNoContextTakeover || !policy.clientNoContextTakeover, "\(deflate), \(policy)")
            require((8...policy.serverWindowBits).contains(deflate.serverWindowBits), "\(deflate), \(policy)")
            require((8...policy.clientWindowBits).contains(deflate.clientWindowBits), "\(deflate), \(policy)")
        case .redirect(let status, let location):
            require((300..<400).contains(status), "a redirect by \(status)")
            self.check(location)
        case .refused(let refusal):
            require((200...999).contains(refusal.status), "\(refusal)")
            require(refusal.body.readableBytes <= Self.maximumBody, "a body of \(refusal.body.readableBytes) bytes")
            require((0...600).contains(refusal.retryAfter ?? 0), "\(refusal)")
            require(refusal.reason.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7F }, "\(refusal.reason) is not a line")
        }
    }

    // MARK: One with the other

    /// Our client opens a WebSocket at our server, and their agreements must be equal.
    private static func bothSides(_ input: inout Input) {
        let (rules, pieces) = (input.rules(), input.pieceSizes())
        guard let key = OpeningKey(input.bytes(16)) else { return }
        let target = input.target()
        let policy = input.bool() ? input.policy() : nil
        let names = input.subprotocols()
        let origin = input.bool() ? input.choice(["https://a", "https://b", "null", "x\n"]) : nil
        var headers = HTTPFields()
        for _ in 0..<input.byte() % 4 {
            let name = input.choice(["Cookie", "X-A", "Origin", "a b", "", "Host", "Sec-WebSocket-Key"])
            let value = input.bytes(Int(input.byte() % 32))
            headers.append(name: name, value: String(decoding: value, as: UTF8.self))
        }
        let request: OpeningRequest
        do throws(OpeningError) {
            request = try OpeningRequest(
                target: target,
                key: key,
                headers: headers,
                subprotocols: names,
                origin: origin,
                deflate: policy
            )
        } catch {
            require(error.isInvalidArgument && !"\(error)".contains("\n"), "\(error)")
            return
        }
        let sent = Array(request.encode().readableBytesView)
        let outcome = ServerOutcome(sent[...], pieces: pieces)
        guard let head = outcome.head else { fatalError("\(request) was not read: \(outcome)") }
        require(head.host == target.host && head.key == key && head.subprotocols == names, "\(request) became \(head)")
        require(head.path == target.path && head.query == target.query, "\(target.url) became \(head.target)")
        require(head.port ?? (target.isSecure ? 443 : 80) == target.port, "\(target) became \(head)")
        switch rules.decide(head) {
        case .reject(let rejection):
            self.check(rejection)
            require([.path, .subprotocol, .origin].contains(rejection), "\(request) was rejected: \(rejection)")
        case .upgrade(let agreement, let response):
            self.check(response, agreement, head, rules)
            let bytes = Array(response.readableBytesView) + [0x81, 0]
            let client = ClientOutcome(bytes[...], to: request, now: 0, pieces: pieces, closes: false)
            guard case .accepted(let agreed, _)? = client.result else { fatalError("\(response) became \(client)") }
            require(client.rest == [0x81, 0], "\(client.rest) after the response")
            require(agreed.subprotocol == agreement.subprotocol, "\(agreed) and \(agreement)")
            require(agreed.deflate == agreement.deflate, "\(agreed) and \(agreement)")
            require(policy == nil || rules.deflate == nil || agreed.deflate != nil, "two policies do not agree")
        }
    }

    // MARK: URLs

    private static func urls(_ input: inout Input) {
        let use = input.choice([WebSocketTarget.Use.client, .listener, .request])
        let base = input.target()
        let text = String(decoding: input.rest, as: UTF8.self)
        do throws(OpeningError) {
            let target = try WebSocketTarget(text, for: use)
            require(use == .listener || !target.sharesPort, "\(text) shares a port")
            self.check(target)
        } catch {
            require(error.isInvalidArgument && !"\(error)".isEmpty, "\(error)")
        }
        if let target = try? base.requesting(text) {
            require(target.requestTarget == text && target.hasOrigin(of: base), "\(base) and \(text) became \(target)")
            self.check(target)
        }
        // Each line is the target of a redirect.
        var rules = RedirectRules(from: base)
        for location in text.split(separator: "\n", omittingEmptySubsequences: false) {
            let before = rules
            do throws(OpeningError) {
                let target = try rules.target.resolving(String(location))
                self.check(target)
                require(
                    !target.path.split(separator: "/").contains { $0 == "." || $0 == ".." }
                        || !location.contains("."),
                    "\(location) became \(target)"
                )
                try rules.follow(to: target)
                require(rules.target == target && rules.count == before.count + 1, "\(rules)")
                require(rules.count <= RedirectRules.maximum, "\(rules.count) redirects")
                require(target.isSecure || !before.target.isSecure, "from wss to ws")
                let isOneOrigin = before.isOfOneOrigin && target.hasOrigin(of: base)
                require(!rules.isOfOneOrigin || isOneOrigin, "\(rules)")
            } catch {
                require(!"\(error)".isEmpty && rules == before, "\(error)")
            }
        }
    }

    /// Checks that a parsed URL can be written, parsed again, and sent.
    private static func check(_ target: WebSocketTarget) {
        require((0...65_535).contains(target.port) && target.path.hasPrefix("/"), "\(target)")
        guard let again = try? WebSocketTarget(target.url) else { fatalError("\(target.url) is not read") }
        require(
            again.host == target.host && again.port == target.port && again.isSecure == target.isSecure
                && again.path == target.path && again.query == target.query,
            "\(target.url) became \(again.url)"
        )
        guard let request = try? OpeningRequest(target: target, key: self.plain.key) else {
            fatalError("\(target.url) cannot be requested")
        }
        let outcome = ServerOutcome(Array(request.encode().readableBytesView)[...], pieces: [])
        if outcome.rejection == .headTooLong { return }
        guard let head = outcome.head else { fatalError("\(target.url) is not understood: \(outcome)") }
        require(head.path == target.path && head.query == target.query, "\(target.url) became \(head.target)")
        require(head.host == target.host, "\(target.url) became \(head.host)")
    }

    private static func dates(_ input: inout Input) {
        let now = input.now()
        let text = String(decoding: input.rest, as: UTF8.self)
        _ = HTTPDate.seconds(text, now: now)
        require((0...600).contains(RetryAfter.seconds(text, now: now) ?? 0), "\(text) at \(now)")
        if let key = OpeningKey(text: text) { require(key.accept.utf8.count == 28, "\(key.accept)") }
    }
}

extension Input {
    fileprivate mutating func now() -> Int64 {
        switch self.byte() % 4 {
        case 0: 784_111_777
        case 1: .max
        case 2: .min
        default: Int64(self.word()) << 16
        }
    }

    fileprivate mutating func subprotocols() -> [String] {
        var names: [String] = []
        for _ in 0..<self.byte() % 4 {
            let name = self.choice(["a", "b", "v12.stomp", "A", "hhsocket.1"])
            if !names.contains(name) { names.append(name) }
        }
        return names
    }

    fileprivate mutating func policy() -> DeflatePolicy {
        let flags = self.byte()
        return DeflatePolicy(
            serverNoContextTakeover: flags & 1 != 0,
            clientNoContextTakeover: flags & 2 != 0,
            serverWindowBits: 15 - Int(flags >> 2 & 7) % 7,
            clientWindowBits: 15 - Int(flags >> 5 & 7) % 7
        )
    }

    fileprivate mutating func rules() -> OpeningRules {
        let flags = self.byte()
        guard
            var rules = try? OpeningRules(
                path: flags & 1 != 0 ? "/b/c" : nil,
                subprotocols: self.subprotocols(),
                requiresSubprotocol: flags & 2 != 0,
                deflate: flags & 4 != 0 ? self.policy() : nil
            )
        else { fatalError("no rules") }
        if flags & 8 != 0 { rules.origins = .list(["https://a"]) }
        return rules
    }

    fileprivate mutating func target() -> WebSocketTarget {
        let scheme = self.choice(["ws", "wss"])
        let host = self.choice(["a", "a.example", "[::1]", "127.0.0.1", "b"])
        let port = self.bool() ? ":\(self.word() & 0xFFFF)" : ""
        let path = self.choice(["", "/", "/b/c", "/b/c?d", "?e=f", "/a/./../b?", "//x//"])
        guard let target = try? WebSocketTarget("\(scheme)://\(host)\(port)\(path)") else { fatalError("no target") }
        return target
    }
}
