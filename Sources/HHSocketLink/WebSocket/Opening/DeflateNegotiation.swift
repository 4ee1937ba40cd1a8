// SPDX-License-Identifier: Apache-2.0
// The two sides of permessage-deflate's negotiation (RFC 7692, sections 5 and 7.1).

extension DeflateAgreement {
    /// Whether the client deflates. It was answered a window of 8 bits otherwise, with which zlib cannot; uncompressed
    /// messages may always be sent.
    package var clientDeflates: Bool { DeflatePolicy.deflatingWindowBits.contains(self.clientWindowBits) }
}

extension DeflatePolicy {
    /// The offers of a client with this policy, the preferred one first: a server that cannot inflate with a window
    /// that is kept may take the second.
    package var offers: [DeflateParameters] {
        var second = self.offer
        second.clientNoContextTakeover = true
        return self.clientNoContextTakeover ? [self.offer] : [self.offer, second]
    }

    /// The offer that a client with this policy prefers.
    package var offer: DeflateParameters {
        var offer = DeflateParameters()
        offer.serverNoContextTakeover = self.serverNoContextTakeover
        offer.clientNoContextTakeover = self.clientNoContextTakeover
        if self.serverWindowBits < 15 { offer.serverWindowBits = self.serverWindowBits }
        offer.limitsClientWindow = true
        if self.clientWindowBits < 15 { offer.clientWindowBits = self.clientWindowBits }
        return offer
    }

    /// Returns the agreement of a client with this policy from the server's answer to its ``offers``.
    package func agreement(answer: DeflateParameters) throws(DeflateFault) -> DeflateAgreement {
        // A server accepts these two by repeating them. The second may become smaller, and both may be unsolicited.
        guard answer.serverNoContextTakeover || !self.serverNoContextTakeover,
            answer.serverWindowBits ?? 15 <= self.serverWindowBits
        else { throw .exceedsOffer }
        if answer.limitsClientWindow, answer.clientWindowBits == nil { throw .missingValue }
        // Without an answer the client may use 15 bits, but keeps to fewer by itself.
        let clientWindowBits = answer.clientWindowBits ?? self.clientWindowBits
        guard clientWindowBits <= self.clientWindowBits else { throw .exceedsOffer }
        return DeflateAgreement(
            serverNoContextTakeover: answer.serverNoContextTakeover,
            clientNoContextTakeover: answer.clientNoContextTakeover || self.clientNoContextTakeover,
            serverWindowBits: answer.serverWindowBits ?? 15,
            clientWindowBits: clientWindowBits
        )
    }

    /// Returns the agreement of a server with this policy on the first of `offers` that it supports, with its answer.
    package func agreement(
        offers: [DeflateParameters]
    ) -> (agreement: DeflateAgreement, answer: DeflateParameters)? {
        for offer in offers {
            let serverWindowBits = min(offer.serverWindowBits ?? 15, self.serverWindowBits)
            guard Self.deflatingWindowBits.contains(serverWindowBits) else { continue }
            let limit = offer.limitsClientWindow ? self.clientWindowBits : 15
            let clientWindowBits = min(offer.clientWindowBits ?? 15, limit)
            let agreement = DeflateAgreement(
                serverNoContextTakeover: offer.serverNoContextTakeover || self.serverNoContextTakeover,
                clientNoContextTakeover: offer.clientNoContextTakeover || self.clientNoContextTakeover,
                serverWindowBits: serverWindowBits,
                clientWindowBits: clientWindowBits
            )
            return (agreement, Self.answer(agreement, to: offer))
        }
        return nil
    }

    private static func answer(_ agreement: DeflateAgreement, to offer: DeflateParameters) -> DeflateParameters {
        var answer = DeflateParameters()
        answer.serverNoContextTakeover = agreement.serverNoContextTakeover
        answer.clientNoContextTakeover = agreement.clientNoContextTakeover
        if offer.serverWindowBits != nil || agreement.serverWindowBits < 15 {
            answer.serverWindowBits = agreement.serverWindowBits
        }
        // Only a client that sends the parameter supports it (section 7.1.2.2).
        if offer.clientWindowBits != nil || agreement.clientWindowBits < 15 {
            answer.limitsClientWindow = true
            answer.clientWindowBits = agreement.clientWindowBits
        }
        return answer
    }
}
