// SPDX-License-Identifier: Apache-2.0
extension WireFormat {
    /// Whether frames of this format can carry hello and the agreed features: the format has no codec; responses have a
    /// status, so that errors can be answered; types have 32 bits; types 3 and 4 are not the application's, and bits 29
    /// to 31 of a type are free; and no request has the serial 3 or 4.
    package var supportsHello: Bool {
        let types = self.layout.applicationTypes
        let typesHaveFlags = [self.layout.request, self.layout.response]
            .allSatisfy { $0.number(of: .type)?.largest == .max }
        return !self.hasCodec && self.hasStatus && typesHaveFlags
            && types.lowerBound >= FrameType.application.lowerBound
            && types.upperBound <= FrameType.application.upperBound
            && !self.layout.requestSerials.contains(FrameSerial.hello)
            && !self.layout.requestSerials.contains(FrameSerial.goAway)
            && self.isFree(FrameType.hello, FrameSerial.hello) && self.isFree(FrameType.goAway, FrameSerial.goAway)
    }

    /// Whether frames of this format can carry streams: it has hello and cancels, and no heartbeat, cancel or push can
    /// be confused with a credit, an end or an item.
    package var supportsStreams: Bool {
        let types = [FrameType.credit, FrameType.end, FrameType.item]
        return self.supportsHello && self.layout.cancel != nil
            && types.allSatisfy { self.isFree($0, FrameSerial.connectionCredit) && self.isFree($0, .max) }
    }

    /// Whether no heartbeat, cancel or push can be confused with a control frame of this type and serial.
    private func isFree(_ type: UInt32, _ serial: UInt32) -> Bool {
        type != self.layout.heartbeat?.type && type != self.layout.heartbeat?.answerType
            && type != self.layout.cancel?.type && !self.isPush(type: type, serial: serial)
    }

    /// The requirements of streams, in words that follow "the wire format … cannot have streams: ".
    package static let streamsNeed = """
        they take hello, cancels, and heartbeats, cancels and pushes that use none of the types 6, 7 and 8
        """

    /// The requirements of hello, in words that follow "the wire format … cannot have hello: ".
    package static let helloNeeds = """
        it takes a layout and no codec, responses with a status, types of 32 bits, applicationTypes within 16 to 0x1FFFFFFF, requestSerials without 3 and 4, and \
        heartbeats, cancels and pushes that use neither type 3 nor 4 nor these serials
        """
}
