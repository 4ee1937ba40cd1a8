// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import HHSocketTesting
import Testing

@Suite struct UTF8ValidatorTests {
    private func isValid(_ bytes: [UInt8], cut: Int) -> Bool {
        var validator = UTF8Validator()
        let pieces = [bytes[..<cut], bytes[cut...]]
        return pieces.allSatisfy { piece in Array(piece).withUnsafeBytes { validator.append($0) } }
            && validator.isComplete
    }

    @Test func agreesWithSwiftOnAllPairsAndBoundaries() {
        let edges: [UInt8] = [
            0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE,
            0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF,
        ]
        for first in 0...UInt8.max {
            for second in 0...UInt8.max {
                let bytes = [first, second]
                #expect(self.isValid(bytes, cut: 1) == (String(validating: bytes, as: UTF8.self) != nil), "\(bytes)")
            }
        }
        for first in edges where first >= 0xC0 {
            for second in edges {
                for third in edges {
                    for fourth in edges {
                        let bytes = [first, second, third, fourth]
                        let expected = String(validating: bytes, as: UTF8.self) != nil
                        if self.isValid(bytes, cut: Int(third) % 5) != expected { Issue.record("\(bytes)") }
                    }
                }
            }
        }
    }

    @Test func agreesWithSwiftOnRandomTextAtEverySplit() {
        var generator = SplitMix(seed: 7)
        for _ in 0..<300 {
            var bytes: [UInt8] = []
            while bytes.count < 40 {
                let scalar = Unicode.Scalar(UInt32.random(in: 0..<0x11_0000, using: &generator)) ?? "a"
                bytes += Bool.random(using: &generator) ? Array("plain ascii".utf8) : Array(String(scalar).utf8)
            }
            if Bool.random(using: &generator) {
                bytes[Int.random(in: bytes.indices, using: &generator)] = UInt8.random(
                    in: .min ... .max,
                    using: &generator
                )
            }
            let expected = String(validating: bytes, as: UTF8.self) != nil
            #expect(bytes.withUnsafeBytes { UTF8Validator.isValid($0) } == expected)
            for cut in 0...bytes.count { #expect(self.isValid(bytes, cut: cut) == expected, "\(bytes) at \(cut)") }
        }
    }
}
