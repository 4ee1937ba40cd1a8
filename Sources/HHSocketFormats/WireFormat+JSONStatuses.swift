// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// Statuses as JSON has them: an object whose keys are numbers on the wire, and whose values are numbers or names, as
/// in `{"1": "noPermission", "0x2A": 404}`.
struct StatusesDescription: Codable {
    var statuses: [UInt32: Status]

    init(statuses: [UInt32: Status]) {
        self.statuses = statuses
    }

    init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: AnyKey.self)
        self.statuses = [:]
        for key in container.allKeys {
            let text = key.stringValue
            let number = text.hasPrefix("0x") ? UInt32(text.dropFirst(2), radix: 16) : UInt32(text)
            guard let number else {
                throw container.wrong(text, "a status on the wire is a number from 0 to \(UInt32.max)")
            }
            let status: Status
            if let name = try? container.decode(String.self, forKey: key), !name.hasPrefix("0x") {
                guard let named = Status.named[name] else {
                    throw container.wrong(
                        text,
                        "\"\(name)\" is not a status; the names: \(Status.named.keys.sorted().joined(separator: ", "))"
                    )
                }
                status = named
            } else {
                status = Status(rawValue: try container.decode(Word.self, forKey: key).value)
            }
            guard self.statuses.updateValue(status, forKey: number) == nil else {
                throw container.wrong(text, "the status \(number) is given twice")
            }
        }
    }

    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: AnyKey.self)
        for (number, status) in self.statuses {
            try container.encode(status.rawValue, forKey: AnyKey("\(number)"))
        }
    }
}
