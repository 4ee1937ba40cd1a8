// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import InstrumentedHHSocketLink

/// Frames that the input describes, which are encoded and decoded again.
enum FrameFuzz {
    static func run(_ bytes: [UInt8]) {
        var input = Input(bytes)
        guard let format = input.bool() ? input.format() : .standard else { return }
        let setup = Setup(&input, format: format)
        let pieces = input.pieceSizes()
        if pieces.isEmpty { DescriptionFuzz.checkThatItSurvives(format) }
        let plan = format.plan(for: setup.direction)
        let header = format.layout.header(setup.direction)
        func largest(_ word: WireFormat.Field.Word) -> UInt32 { header.number(of: word)?.largest ?? .max }
        let largestPayload = min(setup.maximumPayloadLength, plan.largestPayload)
        var frames: [Frame] = []
        var stream = ByteBuffer()
        while !input.isEmpty, frames.count < 32 {
            let length = min(Int(input.byte()) * (input.bool() ? 1 : 5), largestPayload)
            let (type, serial) = (min(input.word(), largest(.type)), min(input.word(), largest(.serial)))
            var frame = Frame(
                type: plan.hasType ? type : plan.impliedType(serial),
                serial: serial,
                status: plan.hasStatus ? plan.statuses.decoded(min(input.word(), largest(.status))) : .ok,
                payload: ByteBuffer(repeating: input.byte(), count: length)
            )
            if plan.customLength > 0 { frame.customFields = input.bytes(plan.customLength) }
            frames.append(frame)
            setup.encoder.encode(frame, into: &stream)
        }
        let decoded = setup.decodeInEveryWay(Array(stream.readableBytesView)[...], pieces: pieces)
        let expected = Decoded(outputs: frames.map { .frame($0) })
        require(decoded == expected, "encoded \(expected)\ndecoded \(decoded)")
    }
}
