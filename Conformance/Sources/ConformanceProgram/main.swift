// SPDX-License-Identifier: Apache-2.0
// The program that protobuf's conformance runner tests: it reads requests from standard input and writes an answer to
// each to standard output. Both are preceded by their length in four bytes, little-endian.

import ConformanceMessages
import Foundation
import HHSocketMessage

/// Reads exactly `count` bytes; nil at the end of the input.
func read(_ count: Int) throws -> Data? {
    guard count > 0 else { return Data() }
    var data = Data()
    while data.count < count {
        guard let piece = try FileHandle.standardInput.read(upToCount: count - data.count), !piece.isEmpty else {
            return nil
        }
        data += piece
    }
    return data
}

let types = TestedTypes()
while let header = try read(4) {
    let length = header.reversed().reduce(0) { $0 << 8 | Int($1) }
    guard let bytes = try read(length) else { break }
    let answer = try types.response(to: Conformance_ConformanceRequest(serializedBytes: bytes)).serializedData()
    let answerLength = withUnsafeBytes(of: UInt32(answer.count).littleEndian) { Data($0) }
    try FileHandle.standardOutput.write(contentsOf: answerLength + answer)
}
