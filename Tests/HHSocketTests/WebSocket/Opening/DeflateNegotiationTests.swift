// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import Testing

@Suite struct DeflateNegotiationTests {
    // MARK: A server

    private func server(
        _ offers: String...,
        policy: DeflatePolicy? = DeflatePolicy()
    ) throws -> (agreement: DeflateAgreement?, answer: String?, rejection: OpeningRejection?) {
        let fields = offers.map { "Sec-WebSocket-Extensions: \($0)\r\n" }.joined()
        let text = OpeningSample.opening().dropLast() + fields + "\r\n"
        let decision = try ServerOutcome(String(text)).decision(OpeningRules(deflate: policy))
        let lines = decision.response?.split(separator: "\r\n").filter { $0.hasPrefix("Sec-WebSocket-Extensions") }
        #expect(lines?.count ?? 0 <= 1)
        let answer = lines?.first.map { String($0.dropFirst("Sec-WebSocket-Extensions: ".count)) }
        return (decision.agreement?.deflate, answer, decision.rejection)
    }

    @Test(arguments: [
        ("permessage-deflate", DeflateAgreement(), "permessage-deflate"),
        ("permessage-deflate; client_max_window_bits", DeflateAgreement(), "permessage-deflate"),
        (
            "permessage-deflate; client_max_window_bits=10", DeflateAgreement(clientWindowBits: 10),
            "permessage-deflate; client_max_window_bits=10"
        ),
        (
            "permessage-deflate; client_max_window_bits=15", DeflateAgreement(),
            "permessage-deflate; client_max_window_bits=15"
        ),
        (
            "permessage-deflate; client_max_window_bits=8", DeflateAgreement(clientWindowBits: 8),
            "permessage-deflate; client_max_window_bits=8"
        ),
        (
            "permessage-deflate; server_max_window_bits=9", DeflateAgreement(serverWindowBits: 9),
            "permessage-deflate; server_max_window_bits=9"
        ),
        (
            "permessage-deflate; server_max_window_bits=15", DeflateAgreement(),
            "permessage-deflate; server_max_window_bits=15"
        ),
        (
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
            DeflateAgreement(serverNoContextTakeover: true, clientNoContextTakeover: true),
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
        ),
        (
            "permessage-deflate;server_max_window_bits = \"1\\0\" ;client_max_window_bits=\"12\"",
            DeflateAgreement(serverWindowBits: 10, clientWindowBits: 12),
            "permessage-deflate; server_max_window_bits=10; client_max_window_bits=12"
        ),
    ])
    func serverTakesWhatIsOffered(_ offer: String, _ agreement: DeflateAgreement, _ answer: String) throws {
        let result = try self.server(offer)
        #expect(result.agreement == agreement)
        #expect(result.answer == answer)
    }

    @Test(arguments: [
        "permessage-deflate; server_max_window_bits=8", "permessage-deflate; server_max_window_bits=7",
        "permessage-deflate; server_max_window_bits=16", "permessage-deflate; server_max_window_bits=09",
        "permessage-deflate; server_max_window_bits=010", "permessage-deflate; server_max_window_bits",
        "permessage-deflate; server_max_window_bits=a", "permessage-deflate; server_max_window_bits=+9",
        "permessage-deflate; server_max_window_bits=99999999999999999999",
        "permessage-deflate; client_max_window_bits=7", "permessage-deflate; client_max_window_bits=16",
        "permessage-deflate; client_max_window_bits=0", "permessage-deflate; client_max_window_bits=1000",
        "permessage-deflate; client_max_window_bits; client_max_window_bits",
        "permessage-deflate; client_max_window_bits=9; client_max_window_bits",
        "permessage-deflate; server_max_window_bits=9; server_max_window_bits=9",
        "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
        "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
        "permessage-deflate; server_no_context_takeover=1", "permessage-deflate; client_no_context_takeover=true",
        "permessage-deflate; unknown", "permessage-deflate; unknown=\"x\"", "x-webkit-deflate-frame", "PERMESSAGE-x",
        "permessage-bzip2; a=b",
    ])
    func serverPassesOverOffersThatItCannotKeepTo(_ offer: String) throws {
        let alone = try self.server(offer)
        #expect(alone.agreement == nil)
        #expect(alone.rejection == nil)
        // B.2: an empty header field is not sent.
        #expect(alone.answer == nil)
        let good = "permessage-deflate; server_max_window_bits=11"
        let followed = try self.server("\(offer), \(good), permessage-deflate")
        #expect(followed.answer == good)
        let inFields = try self.server(offer, good, "permessage-deflate")
        #expect(inFields.answer == good)
    }

    @Test(arguments: [
        "permessage-deflate;", "permessage-deflate; =9", "permessage-deflate; a=", "; a", "permessage deflate",
        "permessage-deflate; a=\"\"", "permessage-deflate; a=\"b c\"", "permessage-deflate; a=\"b", "a; b=\"c\\",
        "permessage-deflate; a=\"b\"c", "permessage-deflate, ;", "a/b", "ä", "permessage-deflate; a b", "=", "a;;b",
        "permessage-deflate; a=\"", "permessage-deflate; a==b", "a; b=\"c\\\"",
    ])
    func malformedExtensionsAreRejected(_ text: String) throws {
        #expect(try self.server(text).rejection == .malformedExtensions)
        #expect(try self.server("permessage-deflate", text).rejection == .malformedExtensions)
        #expect(try self.server(text, policy: nil).rejection == .malformedExtensions)
        let request = try OpeningSample.request(deflate: DeflatePolicy())
        let response = OpeningSample.response("Sec-WebSocket-Extensions: \(text)")
        #expect(ClientOutcome(response, to: request).failure == .malformedExtensions)
    }

    @Test(arguments: ["", " ", ",", " , ,, "])
    func emptyListIsNoExtension(_ text: String) throws {
        let result = try self.server(text)
        #expect(result.rejection == nil && result.agreement == nil && result.answer == nil)
        #expect(try self.server(", permessage-deflate ,").agreement == DeflateAgreement())
        let response = OpeningSample.response("Sec-WebSocket-Extensions:\(text)")
        #expect(ClientOutcome(response, to: try OpeningSample.request()).agreement?.deflate == nil)
        #expect(ClientOutcome(response, to: try OpeningSample.request()).agreement != nil)
    }

    @Test func serverAsksForItsOwnParameters() throws {
        let policy = DeflatePolicy(
            serverNoContextTakeover: true,
            clientNoContextTakeover: true,
            serverWindowBits: 12,
            clientWindowBits: 11
        )
        let named = try self.server("permessage-deflate; client_max_window_bits", policy: policy)
        #expect(
            named.answer == "permessage-deflate; server_no_context_takeover; client_no_context_takeover; "
                + "server_max_window_bits=12; client_max_window_bits=11"
        )
        // A client that does not name the parameter cannot be limited.
        let unnamed = try self.server("permessage-deflate; server_max_window_bits=10", policy: policy)
        #expect(
            unnamed.answer == "permessage-deflate; server_no_context_takeover; client_no_context_takeover; "
                + "server_max_window_bits=10"
        )
        #expect(unnamed.agreement?.clientWindowBits == 15)
        let wide = try self.server("permessage-deflate; client_max_window_bits=14", policy: policy)
        #expect(wide.agreement?.clientWindowBits == 11)
        let narrow = try self.server("permessage-deflate; client_max_window_bits=9", policy: policy)
        #expect(narrow.agreement?.clientWindowBits == 9)
    }

    @Test func serverWithoutPolicyDeclines() throws {
        let result = try self.server("permessage-deflate", policy: nil)
        #expect(result.rejection == nil && result.agreement == nil && result.answer == nil)
    }

    // MARK: A client

    private func client(_ answers: String..., policy: DeflatePolicy? = DeflatePolicy()) throws -> ClientOutcome {
        let fields = answers.map { "Sec-WebSocket-Extensions: \($0)\r\n" }.joined()
        let text = OpeningSample.response().dropLast() + fields + "\r\n"
        return ClientOutcome(String(text), to: try OpeningSample.request(deflate: policy))
    }

    @Test(arguments: [
        (DeflatePolicy(), "permessage-deflate; client_max_window_bits"),
        (DeflatePolicy(clientWindowBits: 9), "permessage-deflate; client_max_window_bits=9"),
        (
            DeflatePolicy(
                serverNoContextTakeover: true,
                clientNoContextTakeover: true,
                serverWindowBits: 8,
                clientWindowBits: 14
            ),
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=8; "
                + "client_max_window_bits=14"
        ),
    ])
    func clientOffersItsPolicy(_ policy: DeflatePolicy, _ offer: String) throws {
        let text = String(buffer: try OpeningSample.request(deflate: policy).encode())
        // A server that keeps no window of the client's may take the second offer.
        var second = policy
        second.clientNoContextTakeover = true
        let offers = policy.clientNoContextTakeover ? offer : "\(offer), \(second.offer)"
        #expect(text.contains("Sec-WebSocket-Extensions: \(offers)\r\n"))
    }

    /// B.2: parameters of windows that are absent mean 15.
    @Test(arguments: [
        ("permessage-deflate", DeflateAgreement()),
        ("permessage-deflate; client_max_window_bits=9", DeflateAgreement(clientWindowBits: 9)),
        ("permessage-deflate; client_max_window_bits=\"15\"", DeflateAgreement()),
        ("permessage-deflate; server_max_window_bits=8", DeflateAgreement(serverWindowBits: 8)),
        ("permessage-deflate; server_no_context_takeover", DeflateAgreement(serverNoContextTakeover: true)),
        ("permessage-deflate; client_no_context_takeover", DeflateAgreement(clientNoContextTakeover: true)),
    ])
    func clientAcceptsWhatItOffered(_ answer: String, _ agreement: DeflateAgreement) throws {
        let outcome = try self.client(answer)
        #expect(outcome.agreement?.deflate == agreement)
        #expect(outcome.agreement?.deflate?.clientDeflates == true)
    }

    @Test(
        arguments: [
            ("permessage-deflate; client_max_window_bits", .missingValue),
            ("permessage-deflate; server_max_window_bits", .missingValue),
            ("permessage-deflate; server_max_window_bits=16", .windowBits),
            ("permessage-deflate; server_max_window_bits=7", .windowBits),
            ("permessage-deflate; client_max_window_bits=08", .windowBits),
            ("permessage-deflate; client_max_window_bits=9; client_max_window_bits=9", .repeatedParameter),
            ("permessage-deflate; server_no_context_takeover; server_no_context_takeover", .repeatedParameter),
            ("permessage-deflate; server_no_context_takeover=1", .unexpectedValue),
            ("permessage-deflate; x", .unknownParameter),
            ("permessage-deflate; Client_max_window_bits=9", .unknownParameter),
        ] as [(String, DeflateFault)]
    )
    func clientRefusesFaultyAnswers(_ answer: String, _ fault: DeflateFault) throws {
        #expect(try self.client(answer).failure == .invalidDeflateAnswer(fault))
    }

    @Test func clientRefusesMoreThanItOffered() throws {
        let fault = OpeningError.invalidDeflateAnswer(.exceedsOffer)
        let narrow = DeflatePolicy(serverWindowBits: 10, clientWindowBits: 11)
        #expect(try self.client("permessage-deflate", policy: narrow).failure == fault)
        #expect(try self.client("permessage-deflate; server_max_window_bits=11", policy: narrow).failure == fault)
        let agreed = try self.client("permessage-deflate; server_max_window_bits=9", policy: narrow)
        // The client keeps to its own limit although the server names none.
        #expect(agreed.agreement?.deflate == DeflateAgreement(serverWindowBits: 9, clientWindowBits: 11))
        let wide = "permessage-deflate; server_max_window_bits=10; client_max_window_bits=12"
        #expect(try self.client(wide, policy: narrow).failure == fault)
        let fresh = DeflatePolicy(serverNoContextTakeover: true)
        #expect(try self.client("permessage-deflate", policy: fresh).failure == fault)
        let own = DeflatePolicy(clientNoContextTakeover: true)
        #expect(try self.client("permessage-deflate", policy: own).agreement?.deflate?.clientNoContextTakeover == true)
    }

    @Test func clientDoesNotDeflateWithEightBits() throws {
        let deflate = try #require(try self.client("permessage-deflate; client_max_window_bits=8").agreement?.deflate)
        #expect(deflate.clientWindowBits == 8)
        #expect(!deflate.clientDeflates)
    }

    @Test func clientRefusesExtensionsThatItDidNotOffer() throws {
        #expect(
            try self.client("permessage-deflate", policy: nil).failure == .extensionNotOffered("permessage-deflate")
        )
        #expect(try self.client("x-foo").failure == .extensionNotOffered("x-foo"))
        #expect(try self.client("permessage-deflate, x-foo; a").failure == .extensionNotOffered("x-foo"))
        #expect(try self.client("permessage-deflate", "x-foo").failure == .extensionNotOffered("x-foo"))
        #expect(try self.client("permessage-deflate, permessage-deflate").failure == .extensionSelectedTwice)
        #expect(try self.client("permessage-deflate", "permessage-deflate").failure == .extensionSelectedTwice)
        #expect(try self.client("PerMessage-Deflate").failure == .extensionNotOffered("PerMessage-Deflate"))
    }

    // MARK: Both

    @Test(arguments: [
        (DeflatePolicy(serverWindowBits: 8), true, false), (DeflatePolicy(clientWindowBits: 8), false, true),
        (DeflatePolicy(serverWindowBits: 7), false, false), (DeflatePolicy(clientWindowBits: 16), false, false),
        (DeflatePolicy(serverWindowBits: 16), false, false), (DeflatePolicy(clientWindowBits: 7), false, false),
        (DeflatePolicy(serverWindowBits: 9, clientWindowBits: 9), true, true),
        (DeflatePolicy(serverWindowBits: .max), false, false), (DeflatePolicy(clientWindowBits: .min), false, false),
    ])
    func policyMustBeOneThatZlibCanKeepTo(_ policy: DeflatePolicy, _ client: Bool, _ server: Bool) throws {
        #expect(((try? OpeningSample.request(deflate: policy)) != nil) == client)
        #expect(((try? OpeningRules(deflate: policy)) != nil) == server)
        if !client {
            let error = #expect(throws: OpeningError.self) { try OpeningSample.request(deflate: policy) }
            #expect(error?.isInvalidArgument == true)
        }
    }

    @Test func anyTwoPoliciesAgree() throws {
        var random = SplitMix(seed: 7_692)
        func policy(server: ClosedRange<Int>, client: ClosedRange<Int>) -> DeflatePolicy {
            DeflatePolicy(
                serverNoContextTakeover: .random(using: &random),
                clientNoContextTakeover: .random(using: &random),
                serverWindowBits: .random(in: server, using: &random),
                clientWindowBits: .random(in: client, using: &random)
            )
        }
        for _ in 0..<5_000 {
            let ours = policy(server: 8...15, client: 9...15)
            let theirs = policy(server: 9...15, client: 8...15)
            guard let (agreement, answer) = theirs.agreement(offers: [ours.offer]) else {
                #expect(ours.serverWindowBits == 8)
                continue
            }
            let other = try ours.agreement(answer: answer)
            #expect(other == agreement, "\(ours.offer) and \(answer)")
            #expect(agreement.serverWindowBits <= min(ours.serverWindowBits, theirs.serverWindowBits))
            #expect(agreement.clientWindowBits <= min(ours.clientWindowBits, theirs.clientWindowBits))
            #expect(agreement.serverNoContextTakeover || !ours.serverNoContextTakeover)
            #expect(agreement.clientNoContextTakeover || !theirs.clientNoContextTakeover)
        }
    }
}
