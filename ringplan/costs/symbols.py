"""The arguments of all formulas: letter, unit and meaning, each written down once."""

from __future__ import annotations

from typing import Final, NamedTuple


class Symbol(NamedTuple):
    """One argument: its letter in equations, its unit, what it is."""

    letter: str
    unit: str
    meaning: str


def _table(text: str) -> dict[str, Symbol]:
    rows = (line.split("|") for line in text.strip().splitlines())
    return {
        name.strip(): Symbol(letter.strip(), unit.strip(), meaning.strip())
        for name, letter, unit, meaning in rows
    }


#: Argument | letter | unit | meaning. `*` is a unit that the use decides.
SYMBOLS: Final = _table("""
seq_len | S | token | tokens of the whole context
new_tokens | N | token | tokens of the pass
cached_tokens | C | token | tokens cached before the pass
block_tokens | n | token | tokens of the context on one rank
query_tokens | q | token | new tokens on one rank
tokens | n | token | tokens
chunk_tokens | chunk | token | tokens of a piece: contiguous on one rank, or computed at once
window | w | token | tokens that a sliding-window layer sees
window_tokens | held | token | tokens of the window on one rank
windows | w | token | sliding windows, 0 for none, by kind of layer
multiple | m | token | new tokens must be a multiple of this
granule | m | token | a block must be a multiple of this
min_block_inside | n_in | token | smallest hidden block on the link inside the domain
min_block_outside | n_out | token | smallest hidden block on the link between domains
batch_size | B | 1 | sequences in the pass
layers | L | layer | layers, by kind where there are several
hidden_size | D | 1 | width of the residual stream
vocab_size | V | 1 | tokens of the vocabulary
num_attention_heads | H | 1 | query heads of the model
num_key_value_heads | G | 1 | key/value heads of the model
num_heads | h | 1 | query heads on one rank
num_kv_heads | g | 1 | key/value heads on one rank
head_dim | d_k | 1 | size of a query or key head
v_head_dim | d_v | 1 | size of a value head
intermediate_size | I | 1 | width of the MLP that one token meets
experts_per_token | k | 1 | routed experts of a token
cached_elements | z | 1 | elements a token leaves in a layer's cache
elements | z | 1 | elements of a token
query_dim | q | 1 | elements of a query head on the wire
last_blocks | r | 1 | 1 where a backward ring starts from the last block it received, else 0
accumulator_bytes | s | B | bytes of an element of accumulators and statistics
output_dim | o | 1 | elements of a partial output head on the wire
grows | - | 1 | 1 for a kind that attends to the whole context, else 0
cp_size | P | rank | context-parallel ranks
ulysses_size | u | rank | ranks that exchange heads
ring_size | R | rank | ranks in a ring
tp_size | T | rank | tensor-parallel ranks
pp_size | - | rank | pipeline stages
dp_size | dp | rank | data-parallel replicas
ep_size | E | rank | expert-parallel ranks
world_size | world | rank | ranks of the job
group_size | k | rank | ranks of one group
inside_ranks | D | rank | context ranks that fit into one domain
inner_ranks | i | rank | ranks on the axes inside this one
first_rank | f | rank | first rank of a ring
side | d | rank | devices along the slowest side of a box of a torus
closes | - | 1 | 1 where that side closes into a ring, else 0
devices_per_node | N | rank | devices of a node
cards_per_node | cards | 1 | network cards of a node
senders | - | rank | ranks of a node that would send out of it at once
crossing_hops | - | hop | hops of a ring that leave the domain
flows_per_node | flows | 1 | transfers that leave a node at once
directions | - | 1 | ways round in which a ring sends at once
span | s | rank | consecutive ranks a group is spread over
domain_size | D | rank | ranks that share the scale-up fabric
residual_shards | s | rank | ranks that share the residual stream of a token
shards | N_zero | rank | ranks that each hold a part
pairs | pairs | pair | visible query-key pairs of a step
first_pairs | first | pair | visible pairs of step 0
forward | n_forward | token | smallest block of the forward pass
backward | n_backward | token | smallest block of the backward pass
visible_share | phi | 1 | visible share of a later step's pairs
mask_share | m | 1 | visible share of the new tokens' pairs
diagonal_share | y | 1 | share of its diagonal that a later step sees
flops | FLOP | FLOP | work
peak | F_peak | FLOP/s | dense peak rate
flops_per_second | F | FLOP/s | achieved rate
efficiency | eta | 1 | achieved over peak or nominal
sizes | q_i | token | sizes of an efficiency table
shares | eta_i | 1 | efficiencies at those sizes
bandwidth | W | B/s | bytes per second, one way
pair_bandwidth | W_pair | B/s | what one pair of ranks can use
message_bytes | m | B | bytes of one message
message_sizes | m_i | B | sizes of a link's efficiency table
link_shares | eta_i | 1 | a link's efficiencies at those sizes
messages | - | 1 | messages in which a transfer is sent
latency | a | s | start-up of one transfer
latencies | k | 1 | transfers one after another
inside | - | 1 | 1 if the group stays in the fast domain
scale_up | up | * | property of the link inside the domain
scale_out | out | * | property of the link between domains
element_bytes | e | B | bytes of one element
bytes_each | - | B | bytes of one thing
partial_bytes | e_p | B | bytes of one element of a partial output
statistic_bytes | - | B | bytes of the statistics of one head
hop_bytes | U | B | bytes of one hop
kv_bytes | U_kv | B | bytes of keys and values
gradient_bytes | U_dkv | B | bytes of gradients, of keys and values or of all parameters
shard_bytes | U | B | bytes of one rank's share
ring_bytes | - | B | bytes that the ring sends
ulysses_bytes | - | B | bytes that the exchange of heads sends
query_bytes | q | B | bytes of one rank's queries
output_bytes | out | B | bytes of one rank's partial outputs
bytes_sent | - | B | bytes that one rank sends
transfer_bytes | bytes | B | bytes of a transfer
gathered_bytes | W_g | B | bytes of the whole that is shared
read_bytes | - | B | bytes read from memory
wire_bytes_per_token | w | B | bytes on the wire for one token of a block
layer_bytes | - | B | bytes of a layer, by kind
layer_time | - | s | time of a layer, by kind
hops | hops | hop | hops of a block
kv_hops | hops_kv | hop | hops of keys and values
gradient_hops | hops_dkv | hop | hops of their gradients
extra_hops | x | hop | hops beyond ring_size
passes | - | 1 | times that the volume is moved
step_time | c | s | compute time of a later step
first_step_time | c_0 | s | compute time of step 0
transfer_time | x | s | time of a hop
busy_time | busy | s | compute time of a pass
exposed_time | exposed | s | communication that nothing hides
ring_exposure | - | s | exposed communication of the ring
ring_time | - | s | time of a pass around the ring
collective_time | - | s | time of collectives
compute_time | - | s | time that the arithmetic takes
memory_time | - | s | time that the memory takes
margin | m | 1 | compute over transfer that is asked for
kv_buffers | k | 1 | K/V blocks held beside the rank's own
replicated | - | 1 | parameters that every rank holds
tensor | - | 1 | parameters cut by tensor parallelism
kv | - | 1 | parameters of key and value projections, by kind
expert | - | 1 | parameters of routed experts
parameters | - | 1 | parameters on one rank
quantized | q | 1 | quantised parameters on one rank
embedding | w | 1 | parameters of embeddings and head on one rank
embedding_bytes | e_w | B | bytes of a parameter of embeddings and head
unquantized | - | 1 | parameters on one rank that stay in 16 bits
quantized_bytes | e_q | B | bytes of a quantised parameter
unquantized_bytes | e_16 | B | bytes of another parameter
per_token | k | B | bytes of cache a token
constant | C | B | bytes of cache that do not grow
rank_kv | kv | B | bytes on one rank that grow with the sequences
parts | - | B | parts of a bill
weights_bytes | - | B | bytes of the weights
activation_bytes | - | B | bytes of activations
logits_bytes | - | B | bytes of the logits
arrived_bytes | - | B | bytes of tensors that came in an exchange of heads
leaving_bytes | - | B | bytes of tensors that will leave in one
ring_buffer_bytes | - | B | bytes of the buffers of the ring or the exchange
optimizer_bytes | - | B | bytes of the optimizer
overhead_bytes | - | B | bytes of context, communicators and graphs
utilization | limit | 1 | share of the memory that may be used
total | t | B | bytes on the fullest rank
capacity | M | B | bytes of a device's memory
dcp_size | D_kv | rank | ranks that share the tokens of a KV head
attention_dp_size | D_a | rank | tensor-parallel ranks that serve other sequences in attention
attention_tp_size | T_a | rank | tensor-parallel ranks that share the heads of a sequence
k_bytes | e_k | B | bytes of an element of a cached key, scales included
v_bytes | e_v | B | bytes of an element of a cached value, scales included
latent_dim | l | 1 | elements of a cached latent and its rotary key
latent_v_dim | c | 1 | elements of a cached latent
latent_bytes | e | B | bytes of an element of a latent
rotary_bytes | e_r | B | bytes of an element of a rotary key
alignment | a | B | bytes to a multiple of which a row is padded
indexer_dim | d | 1 | elements of an indexer's key
scale_bytes | s | B | bytes of the scale of a key
present | - | 1 | 1 where there is one, else 0
row_bytes | row | B | bytes of a token in a layer's cache
rows | row | B | bytes of a token in a layer's cache, by kind
ratios | c | token | tokens that share an entry of a cache, by kind
conv_state | conv | 1 | elements of the states of convolutions, by kind
recurrent_state | state | 1 | elements of recurrent states, by kind
conv_bytes | e_c | B | bytes of an element of a convolution's state
recurrent_bytes | e_s | B | bytes of an element of a recurrent state
state | state | 1 | elements of a state
state_heads | h_s | 1 | heads of a state
shared_tokens | shared | token | tokens of a prefix that all sequences share
page_tokens | p | token | tokens of a page of cache
share | share | 1 | tokens of a pool over those of another
slack_tokens | s | token | tokens that windows are held beside
growing_tokens | n | token | tokens of growing caches on one rank, by kind
indexer_bytes | indexer | B | bytes of an indexer's keys
sequence_bytes | state | B | bytes of a sequence's states
mixer_width | x | 1 | elements a token of a state layer's projections and output
heads | heads | 1 | parameters cut by query or state heads
runtime | r | B | bytes of context and libraries
communicators | - | B | bytes of communicators' buffers
graphs | - | B | bytes of captured graphs
layer_weights_bytes | weights | B | bytes of a whole layer's weights
layer_gradient_bytes | gradient | B | bytes of a whole layer's gradient
copies | copies | 1 | copies that are whole at once
num_micro_batches | m | 1 | passes of a training step
stage | stage | 1 | pipeline stage, from 0
kept | kept | B | bytes that one micro-batch keeps
state_bytes | state | B | bytes of states, or of sums over the steps of a pass
score_bytes | - | B | bytes of stored scores
outside_bytes | outside | B | bytes that no limit counts
rest_bytes | rest | B | bytes of everything but weights, cache and runtime
beside_bytes | t' | B | bytes of everything but caches
kept_bytes | - | B | bytes that are taken out
sequences | n | 1 | sequences on one replica of the model
replicas | r | 1 | replicas of the model
cache_bytes | kv | B | bytes of caches
headroom_here | - | B | bytes left at the answer
headroom_beyond | - | B | bytes left one legal step beyond the answer
headroom_below | - | B | bytes left at one rank less
plateau | eta | 1 | efficiency on enough work
query_rows | B h q | 1 | rows of queries of one call
keys_met | d | 1 | keys that a query meets, hidden halves of tiles included
tile | t | token | keys of a tile
fill_sizes | r_i | 1 | query rows of a curve
fill_shares | fill_i | 1 | shares of the plateau at those
head_size | d_k | 1 | size of a query head, whatever the FLOPs of a pair
head_sizes | d_k,i | 1 | sizes of query heads of a curve
head_shares | head_i | 1 | shares of the plateau at those
depth_sizes | d_i | token | keys of a curve
depth_shares | depth_i | 1 | shares of the plateau at those
lengths | l | token | lengths of packed documents
counts | c | 1 | documents of each length
longest | max(l) | token | length of the longest document
sent | sent | B | bytes of an exchange that brings everything
gather_time | t | s | time of an all-gather
slices | k | 1 | gathers of some heads each
key_bytes | e_k | B | bytes of an element of K on the wire
value_bytes | e_v | B | bytes of an element of V on the wire
kv_sent | sent_kv | B | bytes of keys and values that are sent
gradients_sent | sent_dkv | B | bytes of their gradients that are sent
inner_ring_size | v | rank | neighbours of a window of a double ring
first_gradient_bytes | U_first | B | bytes of gradients of a hop in the first window
recomputed | recomputed | * | of the forward pass that is run again
kv_time | x_kv | s | time of a hop of keys and values
gradient_time | x_dkv | s | time of a hop of their gradients
inner_transfer | x_in | s | time of a hop inside a window
outer_transfer | x_out | s | time of a hop between windows
last_step_time | c_last | s | compute time of the last step
first_transfer | x_0 | s | time of what travels beside step 0
last_transfer | x_last | s | time of what travels beside the last step
home_time | home | s | time of hops after the last step
bytes_per_element | m | B | bytes of memory traffic an element
merge_time | merge | s | time of a merge into the sums
rate | F | FLOP/s | achieved rate
num_statistics | k | 1 | softmax statistics of a head
softmax | - | B | bytes of softmax statistics
rounds | r | 1 | times that partial outputs are moved
queries | - | B | bytes of queries
partials | - | B | bytes of partial outputs
exchange_time | x | s | time of the exchanges of a decode step
read_time | read | s | time to read the cache
heads_per_gather | k | 1 | key/value heads of one gather
messages | m | 1 | tensors that are gathered one after another
block_bytes | U | B | bytes of a block, or of an element of a step's output
rank | r | rank | rank in the ring, from 0
later_share | - | 1 | share of the queries that see a later rank's block
slots | k | 1 | outputs of all queries that are kept
gradient_buffers | k_d | 1 | blocks of dK and dV held
blocks | k | 1 | blocks held
old | - | B | bytes of the buffers left out
new | - | B | bytes of the buffers put in
""")


def symbol(argument: str) -> Symbol:
    """
    Return the letter, unit and meaning of a formula's argument; an item of a list is its list's.

    >>> symbol("cp_size").letter, symbol("layers[0]").unit
    ('P', 'layer')
    """
    return SYMBOLS[argument.partition("[")[0]]
