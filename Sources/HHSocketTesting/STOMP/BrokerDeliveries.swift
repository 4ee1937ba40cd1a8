// SPDX-License-Identifier: Apache-2.0
import DequeModule

/// The messages of a connection that have been delivered and not been acknowledged, in the order of their numbers.
struct BrokerDeliveries: Sendable {
    typealias Delivery = BrokerMachine.Delivery

    /// Acknowledgements mostly arrive in order, so a delivery is mostly found at the front.
    private var all: Deque<Delivery> = []

    mutating func append(_ delivery: Delivery) { self.all.append(delivery) }

    /// The index of the delivery with this number; nil if there is none.
    private func index(of number: Int) -> Int? {
        var (low, high) = (0, self.all.count)
        while low < high {
            let middle = (low + high) / 2
            if self.all[middle].number < number { low = middle + 1 } else { high = middle }
        }
        return low < self.all.count && self.all[low].number == number ? low : nil
    }

    subscript(number: Int) -> Delivery? { self.index(of: number).map { self.all[$0] } }

    func first(where matches: (Delivery) -> Bool) -> Delivery? { self.all.first(where: matches) }

    /// The numbers of the deliveries to a subscription, up to one, that no transaction has claimed.
    func unclaimed(of subscription: Int, upTo number: Int) -> [Int] {
        self.all.prefix { $0.number <= number }
            .filter { $0.subscription == subscription && !$0.isClaimed }
            .map(\.number)
    }

    mutating func claim(_ numbers: [Int], _ isClaimed: Bool) {
        for number in numbers {
            if let index = self.index(of: number) { self.all[index].isClaimed = isClaimed }
        }
    }

    /// Removes deliveries, and returns those that existed, in order.
    mutating func remove(_ numbers: [Int]) -> [Delivery] {
        numbers.sorted().compactMap { number in self.index(of: number).map { self.all.remove(at: $0) } }
    }

    /// Removes the deliveries to a subscription; all of them for nil.
    mutating func removeAll(of subscription: Int? = nil) -> [Delivery] {
        let removed = self.all.filter { subscription == nil || $0.subscription == subscription }
        self.all.removeAll { subscription == nil || $0.subscription == subscription }
        return Array(removed)
    }
}
