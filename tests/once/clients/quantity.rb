# Calls whose quantity is no number of tokens. Prints "refused" for each one that is.

require "./redis_rb"

[-1, 2**63, 1.5, "1"].each do |quantity|
  puts throttle(nil, "user123", 2, 1, 60, quantity, fail: "open").inspect
rescue ArgumentError
  puts "refused"
end
